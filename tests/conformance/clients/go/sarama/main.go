// Sarama behind lines of JSON: see driven.py for the words, test_sarama.py for the tests.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kraftrio/conformance/lines"
)

func main() {
	sarama.Logger = log.New(os.Stderr, "", log.LstdFlags)
	lines.Main(serve, member)
}

const commitTimeout = 20 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Metadata.Retry.Max = 60 // a broker that restarts
	c.Metadata.Retry.Backoff = 200 * time.Millisecond
	getIn(c)
	return c
}

// server holds one idempotent producer per codec.
type server struct {
	address   string
	producers map[string]sarama.SyncProducer
}

func serve(address string) error {
	s := &server{address, map[string]sarama.SyncProducer{}}
	calls := map[string]lines.Call{
		"create_topic": lines.Typed(s.createTopic),
		"produce":      lines.Typed(s.produce),
		"transact":     lines.Typed(s.transact),
		"copy":         lines.Typed(s.copy),
		"zombie":       lines.Typed(s.zombie),
	}
	return lines.Serve(calls, func(err error) int {
		var refusal *sarama.TopicError
		if errors.As(err, &refusal) {
			return int(refusal.Err)
		}
		var code sarama.KError
		if errors.As(err, &code) {
			return int(code)
		}
		return 0
	})
}

type topicArguments struct {
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
}

func (s *server) createTopic(_ context.Context, a topicArguments) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{s.address}, config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: a.Partitions, ReplicationFactor: 1}
	return nil, admin.CreateTopic(a.Topic, detail, false)
}

type produceArguments struct {
	Topic   string         `json:"topic"`
	Codec   string         `json:"codec"`
	Records []lines.Record `json:"records"`
}

func (s *server) producer(codec string) (sarama.SyncProducer, error) {
	if found := s.producers[codec]; found != nil {
		return found, nil
	}
	c := config()
	c.Net.MaxOpenRequests = 1
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 60
	c.Producer.Compression = codecs[codec]
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	made, err := sarama.NewSyncProducer([]string{s.address}, c)
	if err == nil {
		s.producers[codec] = made
	}
	return made, err
}

func (s *server) produce(_ context.Context, a produceArguments) (any, error) {
	producer, err := s.producer(a.Codec)
	if err != nil {
		return nil, err
	}
	messages := []*sarama.ProducerMessage{}
	for _, r := range a.Records {
		message := &sarama.ProducerMessage{Topic: a.Topic, Key: sarama.ByteEncoder(r.Key)}
		if r.Value != nil {
			message.Value = sarama.ByteEncoder(r.Value)
		}
		if r.TimestampMs != nil {
			message.Timestamp = time.UnixMilli(*r.TimestampMs)
		}
		for _, h := range r.Headers {
			one := sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value}
			message.Headers = append(message.Headers, one)
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	places := [][2]int64{}
	for _, message := range messages {
		places = append(places, [2]int64{int64(message.Partition), message.Offset})
	}
	return places, nil
}

// handler is a member: it commits by hand, also what it has read when a session ends.
type handler struct {
	topic   string
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
	next    map[int32]int64
	leaving bool
}

func (h *handler) mark(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	h.lock.Lock()
	defer h.lock.Unlock()
	session.MarkMessage(message, "")
	h.next[message.Partition] = message.Offset + 1
}

// commit tries until the broker has the offsets: the library's own commit tries once, on whatever
// connection there is, and does not say how it went.
func (h *handler) commit(address, group string) error {
	for deadline := time.Now().Add(commitTimeout); ; {
		if done, err := h.tryCommit(address, group); done {
			return nil
		} else if time.Now().After(deadline) {
			return errors.Join(errors.New("the commit does not arrive"), err)
		}
	}
}

func (h *handler) tryCommit(address, group string) (bool, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.session != nil {
		h.session.Commit()
	}
	admin, err := sarama.NewClusterAdmin([]string{address}, config())
	if err != nil {
		return false, err
	}
	defer admin.Close()
	offsets, err := admin.ListConsumerGroupOffsets(group, nil)
	if err != nil {
		return false, err
	}
	for partition, next := range h.next {
		block := offsets.GetBlock(h.topic, partition)
		if block == nil || block.Offset < next {
			return false, nil
		}
	}
	return true, nil
}

// Setup begins a session.
func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.session, h.next = session, map[int32]int64{}
	lines.SayAssigned(session.Claims()[h.topic])
	return nil
}

// Cleanup ends a session, after all its claims have ended.
func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if !h.leaving {
		session.Commit()
	}
	h.session = nil
	lines.SayAssigned(nil)
	return nil
}

// ConsumeClaim says what comes in one partition.
func (h *handler) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			timestampMs := message.Timestamp.UnixMilli()
			record := lines.Record{
				Key: message.Key, Value: message.Value, TimestampMs: &timestampMs,
			}
			for _, header := range message.Headers {
				one := lines.Header{Name: string(header.Key), Value: header.Value}
				record.Headers = append(record.Headers, one)
			}
			h.mark(session, message) // before the test can ask for a commit
			lines.SayReceived(lines.Received{
				Partition: message.Partition, Offset: message.Offset, Record: record,
			})
		case <-session.Context().Done():
			return nil
		}
	}
}

func member(m lines.Member) error {
	c := config()
	c.ClientID = m.Name
	c.Consumer.Group.Session.Timeout = m.Session
	c.Consumer.Group.Heartbeat.Interval = m.Heartbeat
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = m.Commit > 0
	if m.Commit > 0 {
		c.Consumer.Offsets.AutoCommit.Interval = m.Commit
	}
	c.Consumer.Group.InstanceId = m.Instance
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	group, err := sarama.NewConsumerGroup(strings.Split(m.Address, ","), m.Group, c)
	if err != nil {
		return err
	}
	h := &handler{topic: m.Topic}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{m.Topic}, h); err != nil {
				log.Println(err)
				select { // a broker that restarts
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
	}()
	commit := func() error { return h.commit(m.Address, m.Group) }
	leave := func() error {
		h.lock.Lock()
		h.leaving = true
		h.lock.Unlock()
		cancel()
		<-ended
		return group.Close()
	}
	return lines.Obey(commit, leave)
}
