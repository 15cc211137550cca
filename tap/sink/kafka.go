package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"agentstream/tap"
)

// topic writes events into a topic of Kafka, with the run as the record's key: a run is in one partition of the topic,
// in order. The producer is idempotent, so that its own retries store nothing twice.
type topic struct{ client *kgo.Client }

func openKafka(ctx context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	q := u.Query()
	if err := checkQuery(q, "brokers", "tls", "sasl"); err != nil {
		return nil, err
	}
	name := strings.Trim(u.Path, "/")
	if u.Host == "" || name == "" || strings.Contains(name, "/") {
		return nil, errors.New("want kafka://HOST:PORT/TOPIC")
	}
	brokers := []string{u.Host}
	if more := q.Get("brokers"); more != "" {
		brokers = append(brokers, strings.Split(more, ",")...)
	}
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(name), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ClientID("agentstream-tap"), kgo.DialTimeout(o.Timeout), kgo.ProducerBatchMaxBytes(1 << 20)}
	switch text := q.Get("tls"); text {
	case "", "0":
	case "1":
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	default:
		return nil, fmt.Errorf("tls %.10q: want 1 or 0", text)
	}
	login, err := kafkaLogin(u.User, q.Get("sasl"))
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, login...)...)
	if err != nil {
		return nil, err
	}
	once, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := client.Ping(once); err != nil {
		client.Close()
		return nil, err
	}
	return &topic{client}, nil
}

// kafkaLogin returns how a user says who it is; nothing without one.
func kafkaLogin(user *url.Userinfo, mechanism string) ([]kgo.Opt, error) {
	if user == nil {
		return nil, nil
	}
	password, _ := user.Password()
	as := scram.Auth{User: user.Username(), Pass: password}
	switch mechanism {
	case "", "plain":
		return []kgo.Opt{kgo.SASL(plain.Auth{User: as.User, Pass: as.Pass}.AsMechanism())}, nil
	case "scram-sha-256":
		return []kgo.Opt{kgo.SASL(as.AsSha256Mechanism())}, nil
	case "scram-sha-512":
		return []kgo.Opt{kgo.SASL(as.AsSha512Mechanism())}, nil
	}
	return nil, fmt.Errorf("sasl %.20q: want plain, scram-sha-256 or scram-sha-512", mechanism)
}

// Write implements tap.Receiver. It returns when all in-sync replicas have the batch.
func (t *topic) Write(ctx context.Context, batch []tap.Event) (refused []tap.Refusal, err error) {
	records := make([]*kgo.Record, len(batch))
	places := make(map[*kgo.Record]int, len(batch))
	for i := range batch {
		e := &batch[i]
		key := e.Key()
		records[i] = &kgo.Record{Key: []byte(key[:strings.LastIndexByte(key, '/')]), Value: e.Line, Timestamp: e.TS,
			Headers: []kgo.RecordHeader{{Key: "key", Value: []byte(key)}, {Key: "type", Value: []byte(e.Type)}}}
		places[records[i]] = i
	}
	for _, r := range t.client.ProduceSync(ctx, records...) {
		if errors.Is(r.Err, kerr.MessageTooLarge) || errors.Is(r.Err, kerr.InvalidRecord) {
			refused = append(refused, tap.Refusal{Event: places[r.Record], Detail: r.Err.Error()})
			continue
		}
		err = errors.Join(err, r.Err)
		if err != nil { // the others fail for the same reason
			return refused, fmt.Errorf("kafka: %w", err)
		}
	}
	return refused, nil
}

// Close implements tap.Receiver.
func (t *topic) Close() error {
	t.client.Close()
	return nil
}
