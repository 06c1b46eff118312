package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kraftrio/conformance/lines"
)

const recordsPerTransaction = 20

func (s *server) transactional(name string) (*kgo.Client, error) {
	return newClient(kgo.SeedBrokers(s.address), kgo.TransactionalID(name))
}

func valued(topic string, values []string) []*kgo.Record {
	records := []*kgo.Record{}
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	return records
}

// transact sends values in one transaction.
func (s *server) transact(ctx context.Context, a lines.Transact) (any, error) {
	client, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return nil, transaction(ctx, client, a.Topic, a.Values, a.Commit)
}

func transaction(
	ctx context.Context, client *kgo.Client, topic string, values []string, commit bool,
) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, valued(topic, values)...).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

// copy consumes what is committed and produces it again, marked; every second transaction is
// aborted first, after which the library goes back by itself.
func (s *server) copy(ctx context.Context, a lines.Copy) (any, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(s.address),
		kgo.TransactionalID(a.Name),
		kgo.ConsumerGroup(a.Group),
		kgo.ConsumeTopics(a.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	for copied, turn := 0, 0; copied < a.Count; {
		fetches := session.PollRecords(ctx, recordsPerTransaction)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		values := []string{}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, lines.Mark(r.Value)) })
		if err := session.ProduceSync(ctx, valued(a.Target, values)...).FirstErr(); err != nil {
			return nil, err
		}
		commit := turn%2 == 1
		turn++
		committed, err := session.End(ctx, kgo.TransactionEndTry(commit))
		if err != nil {
			return nil, err
		}
		if committed != commit {
			return nil, errors.New("a transaction ended otherwise than was asked")
		}
		if committed {
			copied += len(values)
		}
	}
	return nil, nil
}

// zombie lets a producer go on when another one has taken its place.
func (s *server) zombie(ctx context.Context, a lines.Transact) (any, error) {
	old, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	if err := old.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := old.ProduceSync(ctx, valued(a.Topic, []string{"old"})...).FirstErr(); err != nil {
		return nil, err
	}
	younger, err := s.transactional(a.Name)
	if err != nil {
		return nil, err
	}
	defer younger.Close()
	if err := transaction(ctx, younger, a.Topic, []string{"new"}, true); err != nil {
		return nil, err
	}
	if err := old.ProduceSync(ctx, valued(a.Topic, []string{"late"})...).FirstErr(); err != nil {
		return nil, err
	}
	return nil, old.EndTransaction(ctx, kgo.TryCommit)
}
