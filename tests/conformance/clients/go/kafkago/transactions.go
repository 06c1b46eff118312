package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"kraftrio/conformance/lines"
)

// offsetArguments name an offset to commit within a transaction: kafka-go has the requests for
// that, but no batches of a transaction.
type offsetArguments struct {
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Name   string `json:"name"`
	Offset int64  `json:"offset"`
	Commit bool   `json:"commit"`
}

const transactionTimeout = 30 * time.Second

// begin asks again while the transaction before is being ended: the library leaves that to us.
func (s *server) begin(ctx context.Context, name string) (*kafka.ProducerSession, error) {
	for {
		producer, err := s.tryBegin(ctx, name)
		if !errors.Is(err, kafka.ConcurrentTransactions) {
			return producer, err
		}
	}
}

func (s *server) tryBegin(ctx context.Context, name string) (*kafka.ProducerSession, error) {
	client := &kafka.Client{Addr: kafka.TCP(s.address)}
	answer, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
		TransactionalID:      name,
		TransactionTimeoutMs: int(transactionTimeout.Milliseconds()),
		ProducerID:           -1,
		ProducerEpoch:        -1,
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return nil, err
	}
	return answer.Producer, nil
}

// offset commits an offset in a transaction.
func (s *server) offset(ctx context.Context, a offsetArguments) (any, error) {
	producer, err := s.begin(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	if err := s.addOffset(ctx, a, producer); err != nil {
		return nil, err
	}
	return nil, s.end(ctx, a, producer)
}

func (s *server) addOffset(
	ctx context.Context, a offsetArguments, producer *kafka.ProducerSession,
) error {
	client := &kafka.Client{Addr: kafka.TCP(s.address)}
	added, err := client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
		TransactionalID: a.Name,
		ProducerID:      producer.ProducerID,
		ProducerEpoch:   producer.ProducerEpoch,
		GroupID:         a.Group,
	})
	if err == nil {
		err = added.Error
	}
	if err != nil {
		return err
	}
	committed, err := client.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
		TransactionalID: a.Name,
		GroupID:         a.Group,
		ProducerID:      producer.ProducerID,
		ProducerEpoch:   producer.ProducerEpoch,
		GenerationID:    -1,
		Topics: map[string][]kafka.TxnOffsetCommit{
			a.Topic: {{Partition: 0, Offset: a.Offset}},
		},
	})
	if err != nil {
		return err
	}
	return committed.Topics[a.Topic][0].Error
}

func (s *server) end(
	ctx context.Context, a offsetArguments, producer *kafka.ProducerSession,
) error {
	client := &kafka.Client{Addr: kafka.TCP(s.address)}
	ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{
		TransactionalID: a.Name,
		ProducerID:      producer.ProducerID,
		ProducerEpoch:   producer.ProducerEpoch,
		Committed:       a.Commit,
	})
	if err == nil {
		err = ended.Error
	}
	return err
}

// zombie ends a transaction when another producer has taken the place of its own.
func (s *server) zombie(ctx context.Context, a lines.Transact) (any, error) {
	old, err := s.begin(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	if _, err := s.begin(ctx, a.Name); err != nil {
		return nil, err
	}
	return nil, s.end(ctx, offsetArguments{Name: a.Name, Commit: true}, old)
}
