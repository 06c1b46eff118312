// Package lines is what the drivers of Go's clients share: the lines of JSON that driven.py and
// members.py speak. Stdout is for the protocol alone.
package lines

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxLine     = 1 << 26
	callTimeout = 25 * time.Second
)

// Header is a record's header; a nil value is a null.
type Header struct {
	Name  string
	Value []byte
}

// Record is a record as JSON has it: [key, value, [[name, value], ...], timestamp], bytes in base64.
type Record struct {
	Key, Value  []byte
	Headers     []Header
	TimestampMs *int64
}

// UnmarshalJSON reads a row.
func (r *Record) UnmarshalJSON(data []byte) error {
	var headers [][2]*json.RawMessage
	if err := json.Unmarshal(data, &[]any{&r.Key, &r.Value, &headers, &r.TimestampMs}); err != nil {
		return err
	}
	for _, pair := range headers {
		var one Header
		if err := json.Unmarshal(*pair[0], &one.Name); err != nil {
			return err
		}
		if pair[1] != nil {
			if err := json.Unmarshal(*pair[1], &one.Value); err != nil {
				return err
			}
		}
		r.Headers = append(r.Headers, one)
	}
	return nil
}

// MarshalJSON writes a row.
func (r Record) MarshalJSON() ([]byte, error) {
	headers := [][2]any{}
	for _, one := range r.Headers {
		headers = append(headers, [2]any{one.Name, one.Value})
	}
	return json.Marshal([]any{r.Key, r.Value, headers, r.TimestampMs})
}

// Received is a record with its place: [partition, offset, record].
type Received struct {
	Partition int32
	Offset    int64
	Record    Record
}

// MarshalJSON writes the place and the record.
func (r Received) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.Partition, r.Offset, r.Record})
}

var printing sync.Mutex

func say(event map[string]any) {
	event["at"] = time.Now().UnixMilli()
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

// SayReceived tells of records that came.
func SayReceived(found ...Received) { say(map[string]any{"records": found}) }

// SayAssigned tells of all partitions that are assigned now.
func SayAssigned(partitions []int32) {
	if partitions == nil {
		partitions = []int32{}
	}
	say(map[string]any{"assigned": partitions})
}

// SayFailure tells of an error that breaks the client.
func SayFailure(err error) { say(map[string]any{"failure": err.Error()}) }

func scanner() *bufio.Scanner {
	made := bufio.NewScanner(os.Stdin)
	made.Buffer(nil, maxLine)
	return made
}

// Call makes one call of a library.
type Call func(ctx context.Context, with json.RawMessage) (any, error)

// Typed makes a Call of a function that takes its arguments as a struct.
func Typed[A any](call func(ctx context.Context, arguments A) (any, error)) Call {
	return func(ctx context.Context, with json.RawMessage) (any, error) {
		var arguments A
		if err := json.Unmarshal(with, &arguments); err != nil {
			return nil, err
		}
		return call(ctx, arguments)
	}
}

// Serve answers a request per line; codeOf finds Kafka's code in an error, 0 if there is none.
func Serve(calls map[string]Call, codeOf func(error) int) error {
	input := scanner()
	for input.Scan() {
		var request struct {
			Call string          `json:"call"`
			With json.RawMessage `json:"with"`
		}
		if err := json.Unmarshal(input.Bytes(), &request); err != nil {
			return err
		}
		call, known := calls[request.Call]
		if !known {
			return fmt.Errorf("no call %q", request.Call)
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		result, err := call(ctx, request.With)
		cancel()
		switch {
		case err == nil:
			say(map[string]any{"result": result})
		case codeOf(err) != 0:
			say(map[string]any{"code": codeOf(err), "text": err.Error()})
		default:
			SayFailure(err)
		}
	}
	return input.Err()
}

// Member says where a member of a group is to join, and how.
type Member struct {
	Address, Topic, Group, Name string
	Session, Heartbeat          time.Duration
	Commit                      time.Duration // it commits by itself, so often; 0: it is told to
	Instance                    string        // of a static member, else empty
}

// Obey carries out the commands that come, each in this goroutine, until the member has left.
func Obey(commit, leave func() error) error {
	input := scanner()
	for input.Scan() {
		action := commit
		if input.Text() == "leave" {
			action = leave
		}
		if err := action(); err != nil {
			return err
		}
		say(map[string]any{"done": input.Text()})
		if input.Text() == "leave" {
			return nil
		}
	}
	return input.Err()
}

// Main is the main function of a driver.
func Main(serve func(address string) error, member func(Member) error) {
	if err := dispatch(os.Args[1:], serve, member); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dispatch(args []string, serve func(string) error, member func(Member) error) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case 7 <= len(args) && len(args) <= 9 && args[0] == "member":
		var times [3]time.Duration
		for at, text := range args[5:min(8, len(args))] {
			ms, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			times[at] = time.Duration(ms) * time.Millisecond
		}
		instance := strings.Join(args[min(8, len(args)):], "")
		return member(
			Member{args[1], args[2], args[3], args[4], times[0], times[1], times[2], instance})
	}
	return errors.New("serve ADDRESS, or member ADDRESS TOPIC GROUP NAME SESSION_MS HEARTBEAT_MS" +
		" [COMMIT_MS [INSTANCE_ID]]")
}
