package sink

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"agentstream/internal/backoff"
	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// webhook posts each event, signed as https://www.standardwebhooks.com says: webhook-id is the event's key. The events
// of a run are posted one after the other, those of several runs at the same time.
type webhook struct {
	o      Options
	url    string
	form   string
	client *http.Client

	mu      sync.Mutex
	done    map[schema.RunKey]schema.Seq // newest event that was delivered of a batch that has failed
	trials  map[string]*trial            // of events that have failed, by key
	success uint64                       // deliveries
}

// trial is what an event has failed with so far.
type trial struct {
	failures int
	success  uint64 // webhook.success when it failed first
}

// Forms of what is posted.
const (
	formThin       = "thin"       // the event's place, id and type
	formFull       = "full"       // the event
	formCloudEvent = "cloudevent" // the event in an envelope of CloudEvents 1.0
)

// Bounds of the deliveries of one batch.
const (
	atOnce      = 16 // runs
	firstPause  = 50 * time.Millisecond
	longPause   = 30 * time.Second
	mostAnswer  = 64 << 10
	secretWords = "whsec_"
)

func openWebhook(_ context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	target := *u
	target.Scheme = strings.TrimPrefix(u.Scheme, "webhook+")
	q := target.Query()
	form := q.Get("form")
	q.Del("form")
	target.RawQuery = q.Encode()
	switch form {
	case "":
		form = formThin
	case formThin, formFull, formCloudEvent:
	default:
		return nil, fmt.Errorf("form %.20q: want thin, full or cloudevent", form)
	}
	switch {
	case target.Host == "":
		return nil, errors.New("want webhook+https://HOST/PATH")
	case target.Scheme == "http" && !o.Private:
		return nil, errors.New("http is for receivers on private networks (--allow-private): what is posted can be read on its way")
	}
	if o.Secrets != nil {
		for _, s := range o.Secrets() {
			if _, err := decodeSecret(s); err != nil {
				return nil, err
			}
		}
	}
	return &webhook{o: o, url: target.String(), form: form, client: newClient(o),
		done: map[schema.RunKey]schema.Seq{}, trials: map[string]*trial{}}, nil
}

// decodeSecret returns the key of a secret: whsec_ and base64, or base64.
func decodeSecret(s string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, secretWords))
	if err != nil || len(key) < 16 {
		return nil, errors.New("the secret of a webhook is whsec_ and the base64 of 24 to 64 bytes")
	}
	return key, nil
}

// Write implements tap.Receiver.
func (w *webhook) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	runs := map[schema.RunKey][]int{}
	for i := range batch {
		runs[batch[i].Run] = append(runs[batch[i].Run], i)
	}
	var mu sync.Mutex
	var refused []tap.Refusal
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for key, events := range runs {
		group.Go(func() error {
			for _, i := range events {
				detail, err := w.deliver(ctx, &batch[i])
				if err != nil {
					return err
				}
				if detail != "" {
					mu.Lock()
					refused = append(refused, tap.Refusal{Event: i, Detail: detail})
					mu.Unlock()
				}
				w.note(key, batch[i].Seq)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return refused, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, events := range runs {
		if w.done[key] <= batch[events[len(events)-1]].Seq { // else a part of what had failed is still to come
			delete(w.done, key)
		}
	}
	return refused, nil
}

// note remembers that an event is delivered, or refused, until its whole batch is.
func (w *webhook) note(key schema.RunKey, seq schema.Seq) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[key] = max(w.done[key], seq)
}

// deliver posts an event until it is accepted. A detail says why it never will be.
func (w *webhook) deliver(ctx context.Context, e *tap.Event) (detail string, err error) {
	w.mu.Lock()
	done := w.done[e.Run] >= e.Seq
	w.mu.Unlock()
	if done {
		return "", nil
	}
	body, kind, err := w.body(e)
	if err != nil {
		return err.Error(), nil
	}
	for n := 0; ; n++ {
		status, err := w.post(ctx, e, body, kind)
		switch {
		case err == nil && status/100 == 2:
			w.accept(e)
			return "", nil
		case status == http.StatusGone:
			return "", tap.Stop(fmt.Errorf("webhook %s: 410: nothing more is wanted there", Name(w.url)))
		case err == nil:
			err = fmt.Errorf("webhook %s: status %d for %s", Name(w.url), status, e.Key())
		}
		if errors.Is(err, errPrivate) {
			return "", err
		}
		if w.giveUp(e, status) {
			return err.Error(), nil
		}
		if backoff.Sleep(ctx, backoff.Delay(n, firstPause, longPause)) != nil {
			return "", err
		}
	}
}

// accept notes a delivery.
func (w *webhook) accept(e *tap.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.success++
	delete(w.trials, e.Key())
}

// giveUp counts a failure, and reports whether the event is the reason: the receiver has refused it as such, or has
// failed so often while it took others. Otherwise the receiver is away, and is waited for.
func (w *webhook) giveUp(e *tap.Event, status int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.trials[e.Key()]
	if t == nil {
		t = &trial{success: w.success}
		w.trials[e.Key()] = t
	}
	t.failures++
	over := t.failures >= w.o.Give && w.success > t.success
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		over = over || t.failures >= refusals
	}
	if over {
		delete(w.trials, e.Key())
	}
	return over
}

// refusals is how often a receiver must refuse an event as such.
const refusals = 3

// post sends an event once.
func (w *webhook) post(ctx context.Context, e *tap.Event, body []byte, kind string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	id, at := e.Key(), strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", "agentstream-tap")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", at)
	if w.o.Secrets != nil {
		signature, err := sign(w.o.Secrets(), id, at, body)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Webhook-Signature", signature)
	}
	resp, err := do(w.client, req)
	if err != nil {
		return 0, fmt.Errorf("webhook %s: %w", Name(w.url), err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, mostAnswer)) // so that the connection can be used again
	return resp.StatusCode, resp.Body.Close()
}

// sign returns a signature by each of the secrets, so that a receiver may know the old one or the new one.
func sign(secrets []string, id, at string, body []byte) (string, error) {
	var all []string
	for _, s := range secrets {
		key, err := decodeSecret(s)
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // a hash takes everything
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " "), nil
}

// body returns what is posted, and its type.
func (w *webhook) body(e *tap.Event) (body []byte, kind string, err error) {
	place := map[string]any{"tenant": e.Run.Tenant, "run_id": e.Run.Run, "seq": e.Seq, "event_id": e.ID}
	if e.Child != "" {
		place["child_id"] = e.Child
	}
	at := e.TS.UTC().Format(time.RFC3339Nano)
	kind = "application/json"
	var v map[string]any
	switch w.form {
	case formThin:
		v = map[string]any{"type": e.Type, "timestamp": at, "data": place}
	case formFull:
		place["event"] = json.RawMessage(e.Line)
		v = map[string]any{"type": e.Type, "timestamp": at, "data": place}
	default:
		kind = "application/cloudevents+json"
		v = map[string]any{"specversion": "1.0", "id": e.Key(), "source": "/agentstream/" + e.Run.Tenant + "/" + e.Run.Run,
			"type": "agentstream." + e.Type, "time": at, "datacontenttype": "application/json", "data": json.RawMessage(e.Line)}
	}
	body, err = json.Marshal(v)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", persister.ErrPoison, err)
	}
	return body, kind, nil
}

// Close implements tap.Receiver.
func (w *webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}
