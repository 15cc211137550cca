package sink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentstream/persister"
	"agentstream/tap"
)

// clickhouse inserts each batch as one block over HTTP. Its deduplication token is made of the keys, so that the same
// block again is dropped. The table's engine drops what comes in another block.
type clickhouse struct {
	client *http.Client
	url    string
	user   *url.Userinfo
	insert string
}

// clickhouseTable is the table that is made when there is none.
const clickhouseTable = `create table if not exists %s (
	tenant String, run_id String, seq UInt64, child_id String, id String, type LowCardinality(String),
	ts DateTime64(9, 'UTC'), event String codec(ZSTD(3))
) engine = ReplacingMergeTree order by (tenant, run_id, seq) settings non_replicated_deduplication_window = 10000`

func openClickHouse(ctx context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	q := u.Query()
	if err := checkQuery(q, "table"); err != nil {
		return nil, err
	}
	name := q.Get("table")
	if name == "" {
		name = defaultTable
	}
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") != "" {
		return nil, fmt.Errorf("table %.60q: want letters, digits, _ and .", name)
	}
	target := url.URL{Scheme: strings.TrimPrefix(u.Scheme, "clickhouse+"), Host: u.Host, Path: "/"}
	if database := strings.Trim(u.Path, "/"); database != "" {
		target.RawQuery = url.Values{"database": {database}}.Encode()
	}
	o.Private = true // it is the operator's own database
	c := &clickhouse{client: newClient(o), url: target.String(), user: u.User,
		insert: "insert into " + name + " format JSONEachRow"}
	if err := c.post(ctx, fmt.Sprintf(clickhouseTable, name), nil); err != nil {
		return nil, err
	}
	return c, nil
}

// clickhouseTime is the form of a time in a block.
const clickhouseTime = "2006-01-02 15:04:05.000000000"

// Write implements tap.Receiver.
func (c *clickhouse) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	token := sha256.New()
	for i := range batch {
		e := &batch[i]
		_, _ = fmt.Fprintln(token, e.Key()) // a hash takes everything
		err := enc.Encode(map[string]any{"tenant": e.Run.Tenant, "run_id": e.Run.Run, "seq": e.Seq, "child_id": e.Child,
			"id":   e.ID,
			"type": e.Type, "ts": e.TS.UTC().Format(clickhouseTime), "event": string(e.Line)})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", persister.ErrPoison, err)
		}
	}
	return nil, c.post(ctx, c.insert, url.Values{"insert_deduplication_token": {hex.EncodeToString(token.Sum(nil))},
		"date_time_input_format": {"best_effort"}}, body.Bytes()...)
}

// badValues are the codes of values that a column cannot take. Others are about the table, or about the server.
var badValues = []string{"6", "26", "27", "38", "41", "53", "72", "117", "131"}

// post sends a statement with what it inserts.
func (c *clickhouse) post(ctx context.Context, statement string, settings url.Values, body ...byte) error {
	target, err := url.Parse(c.url)
	if err != nil {
		return err
	}
	q := target.Query()
	for name := range settings {
		q.Set(name, settings.Get(name))
	}
	q.Set("query", statement)
	target.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if c.user != nil {
		req.Header.Set("X-ClickHouse-User", c.user.Username())
		password, _ := c.user.Password()
		req.Header.Set("X-ClickHouse-Key", password)
	}
	resp, err := do(c.client, req)
	if err != nil {
		return fmt.Errorf("clickhouse: %w", err)
	}
	text, err := readAnswer(resp)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("clickhouse: status %d: %.300s", resp.StatusCode, text)
		if slices.Contains(badValues, resp.Header.Get("X-ClickHouse-Exception-Code")) {
			err = fmt.Errorf("%w: %w", persister.ErrPoison, err)
		}
	}
	return err
}

// Close implements tap.Receiver.
func (c *clickhouse) Close() error {
	c.client.CloseIdleConnections()
	return nil
}
