package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kraftrio/conformance/lines"
)

// arguments are those of all calls; each call takes some.
type arguments struct {
	Topic      string            `json:"topic"`
	Codec      string            `json:"codec"`
	Records    []lines.Record    `json:"records"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs"`
	Total      int               `json:"total"`
	Name       string            `json:"name"`
	Value      string            `json:"value"`
	Group      string            `json:"group"`
	At         int64             `json:"at"`
	Before     [][2]int64        `json:"before"`
}

// server holds one producer per codec, and the admin.
type server struct {
	address   string
	client    *kgo.Client
	admin     *kadm.Client
	producers map[string]*kgo.Client
}

func newServer(address string) (*server, error) {
	client, err := newClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, err
	}
	return &server{address, client, kadm.NewClient(client), map[string]*kgo.Client{}}, nil
}

func (s *server) calls() map[string]lines.Call {
	return map[string]lines.Call{
		"produce":        lines.Typed(s.produce),
		"transact":       lines.Typed(s.transact),
		"copy":           lines.Typed(s.copy),
		"zombie":         lines.Typed(s.zombie),
		"create_topic":   lines.Typed(s.createTopic),
		"partitions":     lines.Typed(s.partitions),
		"topics":         lines.Typed(s.topics),
		"add_partitions": lines.Typed(s.addPartitions),
		"delete_topic":   lines.Typed(s.deleteTopic),
		"configs":        lines.Typed(s.configs),
		"set_config":     lines.Typed(s.setConfig),
		"groups":         lines.Typed(s.groups),
		"group":          lines.Typed(s.group),
		"delete_group":   lines.Typed(s.deleteGroup),
		"committed":      lines.Typed(s.committed),
		"offsets":        lines.Typed(s.offsets),
		"delete_records": lines.Typed(s.deleteRecords),
	}
}

func (s *server) close() {
	for _, producer := range s.producers {
		producer.Close()
	}
	s.client.Close()
}

func (s *server) producer(codec string) (*kgo.Client, error) {
	if found := s.producers[codec]; found != nil {
		return found, nil
	}
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	made, err := newClient(
		kgo.SeedBrokers(s.address),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if err == nil {
		s.producers[codec] = made
	}
	return made, err
}

func (s *server) produce(ctx context.Context, a arguments) (any, error) {
	producer, err := s.producer(a.Codec)
	if err != nil {
		return nil, err
	}
	records := []*kgo.Record{}
	for _, r := range a.Records {
		record := &kgo.Record{Topic: a.Topic, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		if r.TimestampMs != nil {
			record.Timestamp = time.UnixMilli(*r.TimestampMs)
		}
		records = append(records, record)
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	places := [][2]int64{}
	for _, record := range records {
		places = append(places, [2]int64{int64(record.Partition), record.Offset})
	}
	return places, nil
}

func (s *server) createTopic(ctx context.Context, a arguments) (any, error) {
	configs := map[string]*string{}
	for name, value := range a.Configs {
		configs[name] = kadm.StringPtr(value)
	}
	made, err := s.admin.CreateTopic(ctx, a.Partitions, 1, configs, a.Topic)
	if err == nil {
		err = made.Err
	}
	return nil, err
}

func (s *server) partitions(ctx context.Context, a arguments) (any, error) {
	topics, err := s.admin.ListTopics(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	found := [][4]any{}
	for _, p := range topics[a.Topic].Partitions.Sorted() {
		found = append(found, [4]any{p.Partition, p.Leader, p.Replicas, p.ISR})
	}
	return found, topics[a.Topic].Err
}

func (s *server) topics(ctx context.Context, _ arguments) (any, error) {
	topics, err := s.admin.ListTopics(ctx)
	return topics.Names(), err
}

func (s *server) addPartitions(ctx context.Context, a arguments) (any, error) {
	changed, err := s.admin.UpdatePartitions(ctx, a.Total, a.Topic)
	if err != nil {
		return nil, err
	}
	return nil, changed.Error()
}

func (s *server) deleteTopic(ctx context.Context, a arguments) (any, error) {
	deleted, err := s.admin.DeleteTopic(ctx, a.Topic)
	if err == nil {
		err = deleted.Err
	}
	return nil, err
}

func (s *server) configs(ctx context.Context, a arguments) (any, error) {
	described, err := s.admin.DescribeTopicConfigs(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := described.On(a.Topic, nil)
	if err == nil {
		err = resource.Err
	}
	found := [][2]any{}
	for _, config := range resource.Configs {
		found = append(found, [2]any{config.Key, config.Value})
	}
	return found, err
}

func (s *server) setConfig(ctx context.Context, a arguments) (any, error) {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: a.Name, Value: kadm.StringPtr(a.Value)}
	altered, err := s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, a.Topic)
	if err != nil {
		return nil, err
	}
	one, err := altered.On(a.Topic, nil)
	if err == nil {
		err = one.Err
	}
	return nil, err
}

func (s *server) groups(ctx context.Context, _ arguments) (any, error) {
	listed, err := s.admin.ListGroups(ctx)
	return listed.Groups(), err
}

func (s *server) group(ctx context.Context, a arguments) (any, error) {
	described, err := s.admin.DescribeGroups(ctx, a.Group)
	if err != nil {
		return nil, err
	}
	one := described[a.Group]
	return [2]any{one.State, len(one.Members)}, one.Err
}

func (s *server) deleteGroup(ctx context.Context, a arguments) (any, error) {
	deleted, err := s.admin.DeleteGroup(ctx, a.Group)
	if err == nil {
		err = deleted.Err
	}
	return nil, err
}

func (s *server) committed(ctx context.Context, a arguments) (any, error) {
	fetched, err := s.admin.FetchOffsets(ctx, a.Group)
	if err != nil {
		return nil, err
	}
	found := [][2]int64{}
	for partition, offset := range fetched[a.Topic] {
		found = append(found, [2]int64{int64(partition), offset.At})
	}
	return found, fetched.Error()
}

func (s *server) offsets(ctx context.Context, a arguments) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch a.At {
	case -2:
		listed, err = s.admin.ListStartOffsets(ctx, a.Topic)
	case -1:
		listed, err = s.admin.ListEndOffsets(ctx, a.Topic)
	default:
		listed, err = s.admin.ListOffsetsAfterMilli(ctx, a.At, a.Topic)
	}
	if err != nil {
		return nil, err
	}
	found := [][2]int64{}
	listed.Each(func(one kadm.ListedOffset) {
		found = append(found, [2]int64{int64(one.Partition), one.Offset})
	})
	return found, listed.Error()
}

func (s *server) deleteRecords(ctx context.Context, a arguments) (any, error) {
	wanted := kadm.Offsets{}
	for _, one := range a.Before {
		wanted.AddOffset(a.Topic, int32(one[0]), one[1], -1)
	}
	deleted, err := s.admin.DeleteRecords(ctx, wanted)
	if err != nil {
		return nil, err
	}
	found := [][2]int64{}
	deleted.Each(func(one kadm.DeleteRecordsResponse) {
		found = append(found, [2]int64{int64(one.Partition), one.LowWatermark})
	})
	return found, deleted.Error()
}
