// Segmentio's kafka-go behind lines of JSON: see driven.py for the words, test_kafka_go.py for the
// tests. It consumes through ConsumerGroup and a reader per partition: its plain Reader does not
// tell which partitions it has.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"kraftrio/conformance/lines"
)

func main() { lines.Main(serve, member) }

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

type logger struct{}

func (logger) Printf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// server holds one writer per codec.
type server struct {
	address string
	writers map[string]*kafka.Writer
}

func serve(address string) error {
	s := &server{address, map[string]*kafka.Writer{}}
	calls := map[string]lines.Call{
		"create_topic": lines.Typed(s.createTopic),
		"produce":      lines.Typed(s.produce),
		"offset":       lines.Typed(s.offset),
		"zombie":       lines.Typed(s.zombie),
	}
	return lines.Serve(calls, func(err error) int {
		var refusal kafka.Error
		if errors.As(err, &refusal) {
			return int(refusal)
		}
		return 0
	})
}

type topicArguments struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
}

func (s *server) createTopic(ctx context.Context, a topicArguments) (any, error) {
	client := &kafka.Client{Addr: kafka.TCP(s.address)}
	config := kafka.TopicConfig{Topic: a.Topic, NumPartitions: a.Partitions, ReplicationFactor: 1}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}}
	made, err := client.CreateTopics(ctx, request)
	if err == nil {
		err = made.Errors[a.Topic]
	}
	return nil, err
}

type produceArguments struct {
	Topic   string         `json:"topic"`
	Codec   string         `json:"codec"`
	Records []lines.Record `json:"records"`
}

func (s *server) writer(codec string) *kafka.Writer {
	if s.writers[codec] == nil {
		s.writers[codec] = &kafka.Writer{
			Addr:            kafka.TCP(s.address),
			Balancer:        &kafka.Hash{},
			RequiredAcks:    kafka.RequireAll,
			Compression:     codecs[codec],
			BatchTimeout:    20 * time.Millisecond,
			MaxAttempts:     60, // a broker that restarts
			WriteBackoffMax: 200 * time.Millisecond,
			ErrorLogger:     logger{},
		}
	}
	return s.writers[codec]
}

// produce does not return where the records went: the library does not tell.
func (s *server) produce(ctx context.Context, a produceArguments) (any, error) {
	messages := []kafka.Message{}
	for _, r := range a.Records {
		message := kafka.Message{Topic: a.Topic, Key: r.Key, Value: r.Value}
		if r.TimestampMs != nil {
			message.Time = time.UnixMilli(*r.TimestampMs)
		}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: h.Name, Value: h.Value})
		}
		messages = append(messages, message)
	}
	return nil, s.writer(a.Codec).WriteMessages(ctx, messages...)
}

// positions are those of the generation that lives now.
type positions struct {
	lock       sync.Mutex
	generation *kafka.Generation
	next       map[int]int64
	leaving    bool
}

func (p *positions) commit(topic string) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.generation == nil || len(p.next) == 0 {
		return nil
	}
	return p.generation.CommitOffsets(map[string]map[int]int64{topic: p.next})
}

func member(m lines.Member) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                m.Group,
		Brokers:           []string{m.Address},
		Topics:            []string{m.Topic},
		Dialer:            &kafka.Dialer{ClientID: m.Name, Timeout: 5 * time.Second},
		SessionTimeout:    m.Session,
		HeartbeatInterval: m.Heartbeat,
		JoinGroupBackoff:  200 * time.Millisecond,
		StartOffset:       kafka.FirstOffset,
		ErrorLogger:       logger{},
	})
	if err != nil {
		return err
	}
	p := &positions{}
	go func() {
		for {
			generation, err := group.Next(context.Background())
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err == nil {
				p.begin(generation, m)
			}
		}
	}()
	commit := func() error { return p.commit(m.Topic) }
	leave := func() error {
		p.lock.Lock()
		p.leaving = true
		p.lock.Unlock()
		return group.Close()
	}
	return lines.Obey(commit, leave)
}

// begin starts a reader per partition; the last of them to end commits what all have read.
func (p *positions) begin(generation *kafka.Generation, m lines.Member) {
	p.lock.Lock()
	p.generation, p.next = generation, map[int]int64{}
	p.lock.Unlock()
	assigned := []int32{}
	var reading sync.WaitGroup
	for _, one := range generation.Assignments[m.Topic] {
		assigned = append(assigned, int32(one.ID))
		reading.Add(1)
		generation.Start(func(ctx context.Context) {
			defer reading.Done()
			p.read(ctx, m, one)
		})
	}
	lines.SayAssigned(assigned)
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		reading.Wait()
		p.lock.Lock()
		leaving := p.leaving
		p.lock.Unlock()
		if !leaving {
			if err := p.commit(m.Topic); err != nil {
				logger{}.Printf("commit at the end of a generation: %v", err)
			}
		}
		lines.SayAssigned(nil)
	})
}

func (p *positions) read(ctx context.Context, m lines.Member, from kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     []string{m.Address},
		Topic:       m.Topic,
		Partition:   from.ID,
		MaxWait:     100 * time.Millisecond,
		ErrorLogger: logger{},
	})
	defer reader.Close()
	if err := reader.SetOffset(from.Offset); err != nil {
		lines.SayFailure(err)
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil || errors.Is(err, kafka.ErrGenerationEnded) {
			return
		}
		if err != nil {
			logger{}.Printf("partition %d: %v", from.ID, err)
			continue
		}
		timestampMs := message.Time.UnixMilli()
		record := lines.Record{Key: message.Key, Value: message.Value, TimestampMs: &timestampMs}
		for _, h := range message.Headers {
			record.Headers = append(record.Headers, lines.Header{Name: h.Key, Value: h.Value})
		}
		p.lock.Lock()
		p.next[from.ID] = message.Offset + 1
		p.lock.Unlock()
		lines.SayReceived(lines.Received{
			Partition: int32(message.Partition), Offset: message.Offset, Record: record,
		})
	}
}
