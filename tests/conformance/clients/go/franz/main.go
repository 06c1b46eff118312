// Franz-go behind lines of JSON: see driven.py for the words, test_franz_go.py for the tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kraftrio/conformance/lines"
)

func main() { lines.Main(serve, member) }

func serve(address string) error {
	s, err := newServer(address)
	if err != nil {
		return err
	}
	defer s.close()
	return lines.Serve(s.calls(), func(err error) int {
		var refusal *kerr.Error
		if errors.As(err, &refusal) {
			return int(refusal.Code)
		}
		return 0
	})
}

// assignment is what a member has now; the library calls it from one goroutine at a time.
type assignment struct {
	topic   string
	held    map[int32]bool
	leaving atomic.Bool
}

func (a *assignment) show() {
	partitions := []int32{}
	for partition := range a.held {
		partitions = append(partitions, partition)
	}
	lines.SayAssigned(partitions)
}

func (a *assignment) add(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	for _, partition := range added[a.topic] {
		a.held[partition] = true
	}
	a.show()
}

func (a *assignment) lose(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	for _, partition := range lost[a.topic] {
		delete(a.held, partition)
	}
	a.show()
}

// revoke commits what has been read before others go on from there.
func (a *assignment) revoke(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
	if !a.leaving.Load() {
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			lines.SayFailure(err)
		}
	}
	a.lose(ctx, client, revoked)
}

func member(m lines.Member) error {
	a := &assignment{topic: m.Topic, held: map[int32]bool{}}
	commits := kgo.DisableAutoCommit()
	if m.Commit > 0 {
		commits = kgo.AutoCommitInterval(m.Commit)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(m.Address, ",")...),
		kgo.ClientID(m.Name),
		kgo.ConsumerGroup(m.Group),
		kgo.ConsumeTopics(m.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		commits,
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(m.Session),
		kgo.HeartbeatInterval(m.Heartbeat),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.OnPartitionsAssigned(a.add),
		kgo.OnPartitionsRevoked(a.revoke),
		kgo.OnPartitionsLost(a.lose),
	}
	if m.Instance != "" {
		options = append(options, kgo.InstanceID(m.Instance))
	}
	client, err := newClient(options...)
	if err != nil {
		return err
	}
	actions := make(chan func())
	inPollLoop := func(action func() error) func() error {
		return func() error {
			done := make(chan error)
			actions <- func() { done <- action() }
			return <-done
		}
	}
	commit := func() error { return client.CommitUncommittedOffsets(context.Background()) }
	leave := func() error {
		a.leaving.Store(true)
		client.CloseAllowingRebalance()
		return nil
	}
	go func() {
		for {
			select {
			case action := <-actions:
				action()
			default:
				poll(client)
			}
		}
	}()
	return lines.Obey(inPollLoop(commit), inPollLoop(leave))
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
	found := []lines.Received{}
	fetches.EachRecord(func(record *kgo.Record) {
		timestampMs := record.Timestamp.UnixMilli()
		one := lines.Record{Key: record.Key, Value: record.Value, TimestampMs: &timestampMs}
		for _, h := range record.Headers {
			one.Headers = append(one.Headers, lines.Header{Name: h.Key, Value: h.Value})
		}
		found = append(found, lines.Received{
			Partition: record.Partition, Offset: record.Offset, Record: one,
		})
	})
	if len(found) > 0 {
		lines.SayReceived(found...)
	}
}
