package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"agentstream/schema"
	"agentstream/tap"
)

// Options are what several kinds of sinks need beside their address.
type Options struct {
	Stdout  io.Writer
	Secrets func() []string // for signatures, the newest first; nil: none
	Private bool            // addresses of this machine and of private networks may be asked
	Timeout time.Duration   // for one request; default 15 s
	Give    int             // deliveries of one event that may fail while others succeed; default 20
	OTLP    OTLP
}

// sinkKind is one kind of sink.
type sinkKind struct {
	schemes []string
	form    string // of its addresses, for people
	open    func(ctx context.Context, u *url.URL, o Options) (tap.Receiver, error)
}

// kinds is the table of all kinds.
func kinds() []sinkKind {
	return []sinkKind{
		{[]string{"stdout", "file"}, "stdout: or file:PATH", openLines},
		{[]string{"webhook+https", "webhook+http"}, "webhook+https://HOST/PATH", openWebhook},
		{[]string{"postgres", "postgresql"}, "postgres://USER@HOST/DATABASE", openPostgres},
		{[]string{"nats", "tls"}, "nats://HOST/SUBJECT", openNATS},
		{[]string{"kafka"}, "kafka://HOST:PORT/TOPIC", openKafka},
		{[]string{"clickhouse+http", "clickhouse+https"}, "clickhouse+http://HOST/DATABASE", openClickHouse},
		{[]string{"otlp+http", "otlp+https", "otlp+grpc", "otlp+grpcs"}, "otlp+http://HOST:PORT", openOTLP},
	}
}

// Forms returns the forms of addresses, for people.
func Forms() (forms []string) {
	for _, k := range kinds() {
		forms = append(forms, k.form)
	}
	return forms
}

// Name returns an address without what may be secret in it: user, password and query.
func Name(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Open opens the sinks of addresses. Of several, each gets every event, and a batch is delivered when all have it.
func Open(ctx context.Context, addresses []string, o Options) (tap.Receiver, error) {
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Give == 0 {
		o.Give = 20
	}
	var all several
	for _, address := range addresses {
		s, err := openOne(ctx, address, o)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, s)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	if len(all) == 0 {
		return nil, errors.New("--to is required")
	}
	return all, nil
}

func openOne(ctx context.Context, address string, o Options) (tap.Receiver, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("--to: not an address") // not quoted: it may hold a password
	}
	for _, k := range kinds() {
		if slices.Contains(k.schemes, u.Scheme) {
			s, err := k.open(ctx, u, o)
			if err != nil {
				return nil, fmt.Errorf("--to %s: %w", Name(address), err)
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("--to: %.40q is no kind of sink; want %s", u.Scheme, strings.Join(Forms(), ", "))
}

// checkQuery returns an error when an address has options that its kind does not know.
func checkQuery(q url.Values, known ...string) error {
	for name := range q {
		if !slices.Contains(known, name) {
			return fmt.Errorf("option %.40q is unknown; want %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// several are sinks that all get each event.
type several []tap.Receiver

// Write implements tap.Receiver.
func (s several) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	refused := make([][]tap.Refusal, len(s))
	var group errgroup.Group
	for i, one := range s {
		group.Go(func() (err error) {
			refused[i], err = one.Write(ctx, batch)
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(refused...), err
}

// Confirm implements tap.Confirmer.
func (s several) Confirm(ctx context.Context, runs []schema.RunKey) (err error) {
	for _, one := range s {
		err = errors.Join(err, tap.Confirm(ctx, one, runs))
	}
	return err
}

// Close implements tap.Receiver.
func (s several) Close() (err error) {
	for _, one := range s {
		err = errors.Join(err, one.Close())
	}
	return err
}
