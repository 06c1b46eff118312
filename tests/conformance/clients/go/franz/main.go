// Franz-go behind lines of JSON: see driven.py for the words, test_franz_go.py for the tests.
//
//	franz serve ADDRESS
//	franz member ADDRESS TOPIC GROUP NAME SESSION_MS HEARTBEAT_MS
//
// Stdout is for the protocol alone.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const maxLine = 1 << 26

// header is a name and a value, which may be null.
type header [2]any

// row is a record as JSON takes it; encoding/json has bytes in base64 and nil as null.
type row struct {
	key, value  []byte
	headers     []kgo.RecordHeader
	timestampMs *int64
}

func (r *row) UnmarshalJSON(data []byte) error {
	var headers [][2]*json.RawMessage
	if err := json.Unmarshal(data, &[]any{&r.key, &r.value, &headers, &r.timestampMs}); err != nil {
		return err
	}
	for _, pair := range headers {
		var one kgo.RecordHeader
		if err := json.Unmarshal(*pair[0], &one.Key); err != nil {
			return err
		}
		if pair[1] != nil {
			if err := json.Unmarshal(*pair[1], &one.Value); err != nil {
				return err
			}
		}
		r.headers = append(r.headers, one)
	}
	return nil
}

func rowOf(record *kgo.Record) []any {
	headers := []header{}
	for _, one := range record.Headers {
		headers = append(headers, header{one.Key, one.Value})
	}
	return []any{record.Key, record.Value, headers, record.Timestamp.UnixMilli()}
}

var printing sync.Mutex

func say(event map[string]any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func lines() *bufio.Scanner {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, maxLine)
	return scanner
}

func main() {
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(os.Args[2])
	case "member":
		err = member(os.Args[2], os.Args[3:])
	default:
		err = errors.New("serve or member")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers a request per line.
func serve(address string) error {
	s, err := newServer(address)
	if err != nil {
		return err
	}
	defer s.close()
	scanner := lines()
	for scanner.Scan() {
		var request struct {
			Call string          `json:"call"`
			With json.RawMessage `json:"with"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &request); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		result, err := s.answer(ctx, request.Call, request.With)
		cancel()
		var refusal *kerr.Error
		switch {
		case errors.As(err, &refusal):
			say(map[string]any{"code": refusal.Code, "text": err.Error()})
		case err != nil:
			say(map[string]any{"failure": err.Error()})
		default:
			say(map[string]any{"result": result})
		}
	}
	return scanner.Err()
}

// member consumes in a group; it commits by hand, also what it has read when it must give it up.
func member(address string, args []string) error {
	topic, group, name := args[0], args[1], args[2]
	session, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	heartbeat, err := strconv.Atoi(args[4])
	if err != nil {
		return err
	}
	assigned := map[int32]bool{}
	leaving := false
	show := func() {
		partitions := []int32{}
		for partition := range assigned {
			partitions = append(partitions, partition)
		}
		say(map[string]any{"assigned": partitions})
	}
	give := func(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
		if !leaving {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				say(map[string]any{"failure": err.Error()})
			}
		}
		for _, partition := range revoked[topic] {
			delete(assigned, partition)
		}
		show()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.ClientID(name),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(session)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(heartbeat)*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			for _, partition := range added[topic] {
				assigned[partition] = true
			}
			show()
		}),
		kgo.OnPartitionsRevoked(give),
		kgo.OnPartitionsLost(func(ctx context.Context, client *kgo.Client, lost map[string][]int32) {
			for _, partition := range lost[topic] {
				delete(assigned, partition)
			}
			show()
		}),
	)
	if err != nil {
		return err
	}
	commands := make(chan string)
	go func() {
		scanner := lines()
		for scanner.Scan() {
			commands <- scanner.Text()
		}
		close(commands)
	}()
	for {
		select {
		case command := <-commands:
			if command == "commit" {
				if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
					return err
				}
				say(map[string]any{"done": command})
				continue
			}
			leaving = true
			client.CloseAllowingRebalance()
			say(map[string]any{"done": command})
			return nil
		default:
			poll(client)
		}
	}
}

// poll says what has come, for a tenth of a second.
func poll(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	defer client.AllowRebalance()
	fetches := client.PollRecords(ctx, 200)
	fetches.EachError(func(topic string, partition int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			fmt.Fprintln(os.Stderr, topic, partition, err)
		}
	})
	found := []any{}
	fetches.EachRecord(func(record *kgo.Record) {
		found = append(found, []any{record.Partition, record.Offset, rowOf(record)})
	})
	if len(found) > 0 {
		say(map[string]any{"records": found})
	}
}
