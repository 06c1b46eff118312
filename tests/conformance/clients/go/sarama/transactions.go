package main

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kraftrio/conformance/lines"
)

const (
	recordsPerTransaction = 20
	nothingMore           = 200 * time.Millisecond
)

func (s *server) transactional(name string) (sarama.SyncProducer, error) {
	c := config()
	c.Net.MaxOpenRequests = 1
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Transaction.ID = name
	return sarama.NewSyncProducer([]string{s.address}, c)
}

func send(producer sarama.SyncProducer, topic string, values ...string) error {
	messages := []*sarama.ProducerMessage{}
	for _, value := range values {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
		messages = append(messages, message)
	}
	return producer.SendMessages(messages)
}

// transact sends values in one transaction.
func (s *server) transact(_ context.Context, a lines.Transact) (any, error) {
	producer, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	if err := send(producer, a.Topic, a.Values...); err != nil {
		return nil, err
	}
	return nil, end(producer, a.Commit)
}

func end(producer sarama.SyncProducer, commit bool) error {
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

// copier is a member of a group that copies, a transaction at a time.
type copier struct {
	lines.Copy
	producer sarama.SyncProducer
	finish   context.CancelFunc
	lock     sync.Mutex
	copied   int
	failure  error
}

// copy consumes what is committed and produces it again, marked; every transaction is aborted
// once before it is committed.
func (s *server) copy(ctx context.Context, a lines.Copy) (any, error) {
	producer, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	c := config()
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup([]string{s.address}, a.Group, c)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	member := &copier{Copy: a, producer: producer, finish: finish}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{a.Source}, member); err != nil {
			return nil, err
		}
	}
	return nil, member.failure
}

// Setup begins a session.
func (c *copier) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup ends a session.
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim copies a partition.
func (c *copier) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for session.Context().Err() == nil {
		found := gather(claim.Messages())
		if len(found) == 0 {
			continue
		}
		c.lock.Lock()
		c.take(claim.Partition(), found)
		c.lock.Unlock()
	}
	return nil
}

func gather(messages <-chan *sarama.ConsumerMessage) []*sarama.ConsumerMessage {
	found := []*sarama.ConsumerMessage{}
	for len(found) < recordsPerTransaction {
		select {
		case message, open := <-messages:
			if !open {
				return found
			}
			found = append(found, message)
		case <-time.After(nothingMore):
			return found
		}
	}
	return found
}

func (c *copier) take(partition int32, found []*sarama.ConsumerMessage) {
	values := []string{}
	for _, message := range found {
		values = append(values, lines.Mark(message.Value))
	}
	next := found[len(found)-1].Offset + 1
	for _, commit := range []bool{false, true} {
		if c.failure == nil {
			c.failure = c.transaction(partition, next, values, commit)
		}
	}
	if c.copied += len(found); c.copied >= c.Count || c.failure != nil {
		c.finish()
	}
}

func (c *copier) transaction(partition int32, next int64, values []string, commit bool) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	if err := send(c.producer, c.Target, values...); err != nil {
		return err
	}
	offset := &sarama.PartitionOffsetMetadata{Partition: partition, Offset: next}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{c.Source: {offset}}
	if err := c.producer.AddOffsetsToTxn(offsets, c.Group); err != nil {
		return err
	}
	return end(c.producer, commit)
}

// zombie lets a producer go on when another one has taken its place.
func (s *server) zombie(_ context.Context, a lines.Transact) (any, error) {
	old, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	if err := old.BeginTxn(); err != nil {
		return nil, err
	}
	if err := send(old, a.Topic, "old"); err != nil {
		return nil, err
	}
	younger, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer younger.Close()
	if err := younger.BeginTxn(); err != nil {
		return nil, err
	}
	if err := send(younger, a.Topic, "new"); err != nil {
		return nil, err
	}
	if err := younger.CommitTxn(); err != nil {
		return nil, err
	}
	if _, _, err := old.SendMessage(&sarama.ProducerMessage{
		Topic: a.Topic, Value: sarama.StringEncoder("late"),
	}); err != nil {
		return nil, err
	}
	return nil, old.CommitTxn()
}
