package scrub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// cutLog removes the messages of the run from the log up to the last one that holds something else than the archive.
func (r *one) cutLog(ctx context.Context) error {
	if r.cfg.Log == nil || r.through == 0 {
		return nil
	}
	c := comparison{one: r}
	defer c.close()
	cut := uint64(0)
	for m, err := range r.cfg.Log.Messages(ctx, r.key, r.through) {
		if err != nil {
			return err
		}
		same, err := c.isStored(ctx, &m)
		if err != nil {
			return err
		}
		if !same {
			cut = m.Position
		}
	}
	if cut == 0 || r.cfg.DryRun {
		return nil
	}
	n, err := r.cfg.Log.Cut(ctx, r.key, cut)
	r.done.Messages += n
	return err
}

// comparison reads what the archive has of a run, in step with the log.
type comparison struct {
	*one
	next  func() (schema.Pack, error, bool)
	stop  func()
	lines [][]byte
	seq   schema.Seq // of the first of lines
	over  bool
}

func (c *comparison) close() {
	if c.stop != nil {
		c.stop()
	}
}

// isStored reports whether the archive has the lines of a message, or the message has nothing to hide. What the archive
// does not have, because it has expired or is a dead letter, is looked at by the rules.
func (c *comparison) isStored(ctx context.Context, m *persister.Logged) (bool, error) {
	if m.Pack.Count == 0 {
		return !c.hasFinding(m.Body), nil
	}
	seq := m.Pack.First
	for line := range schema.Lines(m.Pack.Body) {
		stored, err := c.line(ctx, seq)
		if err != nil {
			return false, err
		}
		if stored == nil && seal.IsSealed(line) {
			c.done.Sealed.Events++
		}
		if stored != nil && !bytes.Equal(stored, line) || stored == nil && c.hasFinding(line) {
			return false, nil
		}
		seq++
	}
	return true, nil
}

// line returns the line of an event that the archive has, nil when it has none. Seqs grow from call to call.
func (c *comparison) line(ctx context.Context, seq schema.Seq) ([]byte, error) {
	if c.next == nil {
		c.next, c.stop = iter.Pull2(c.cfg.History.Packs(ctx, c.key, seq-1, schema.MaxSeq))
	}
	for !c.over && seq >= c.seq+schema.Seq(len(c.lines)) {
		p, err, ok := c.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			c.over = true
			break
		}
		c.seq, c.lines = p.First, c.lines[:0]
		for line := range schema.Lines(p.Body) {
			c.lines = append(c.lines, line)
		}
	}
	if seq < c.seq || seq >= c.seq+schema.Seq(len(c.lines)) {
		return nil, nil
	}
	return c.lines[seq-c.seq], nil
}

// hasFinding reports whether the rules find something in bytes.
func (r *one) hasFinding(b []byte) bool {
	_, hits, _ := cleanBytes(r.rules, b)
	return len(hits) > 0
}

// cleanLines hides what the rules find in lines of events, also what is divided over them. ok is false for what is none.
func cleanLines(rules *redact.Rules, b []byte) (clean []byte, hits []redact.Hit, ok bool) {
	look := redact.NewStored(rules, nil)
	var lines []redact.StoredLine
	for line := range schema.Lines(b) {
		more, err := look.Add(line)
		if err != nil {
			return nil, nil, false
		}
		lines = append(lines, more...)
	}
	clean = joinLines(append(lines, look.Rest()...))
	if !bytes.HasSuffix(b, []byte("\n")) {
		clean = bytes.TrimSuffix(clean, []byte("\n"))
	}
	return clean, look.Hits, true
}

// cleanBytes hides what the rules find in lines of events, or in what is none. hasSealed reports that some lines are sealed:
// these stay as they are.
func cleanBytes(rules *redact.Rules, b []byte) (clean []byte, hits []redact.Hit, hasSealed bool) {
	for line := range schema.Lines(b) {
		hasSealed = hasSealed || seal.IsSealed(line)
	}
	clean, hits, ok := cleanLines(rules, b)
	if !ok {
		clean, hits = cleanTexts(rules, b)
	}
	if len(hits) == 0 {
		clean = b
	}
	return clean, hits, hasSealed
}

// cleanTexts hides what the rules find in lines of which some are no events, and in the texts between sealed lines.
func cleanTexts(rules *redact.Rules, b []byte) (clean []byte, hits []redact.Hit) {
	var text []byte // since the last sealed line
	end := func() {
		whole, found := rules.Text(string(text)) // what is neither, and goes over lines
		clean, hits, text = append(clean, whole...), append(hits, found...), text[:0]
	}
	for part := range bytes.Lines(b) {
		line := bytes.TrimSuffix(part, []byte("\n"))
		feed := part[len(line):]
		if seal.IsSealed(line) {
			end()
			clean = append(clean, part...)
			continue
		}
		changed, found, err := rules.Line(line)
		if err != nil && json.Valid(line) {
			changed, found = rules.Value("", line)
		}
		if len(found) > 0 {
			line, hits = changed, append(hits, found...)
		}
		text = append(append(text, line...), feed...)
	}
	end()
	return clean, hits
}

// findBlobs looks into the blobs of the run, in the log and as objects.
func (r *one) findBlobs(ctx context.Context) error {
	r.blobs = make(map[string][]redact.Hit)
	r.sealed = make(map[string]bool)
	defer func() { r.done.Sealed.Blobs = len(r.sealed) }()
	if r.cfg.Blobs != nil {
		list, err := r.cfg.Blobs.ListBlobs(ctx, r.key)
		if err != nil {
			return err
		}
		for _, b := range list {
			blob, pieces, err := r.cfg.Blobs.Blob(ctx, r.key, b.Ref)
			if errors.Is(err, schema.ErrNoBlob) {
				continue
			}
			if err == nil {
				err = r.findIn(&blob, pieces)
			}
			if err != nil {
				return err
			}
		}
	}
	if r.cfg.Objects == nil || r.place.Day == "" {
		return nil
	}
	for blob, pieces := range r.cfg.Objects.Large(ctx, r.key, r.place.Day) {
		if len(r.blobs[blob.Ref]) > 0 {
			continue
		}
		if err := r.findIn(&blob, pieces); err != nil {
			return err
		}
	}
	return nil
}

func (r *one) findIn(blob *schema.Blob, pieces iter.Seq2[[]byte, error]) error {
	if schema.IsSealedBlob(blob.Type) {
		r.sealed[blob.Ref] = true
		return nil
	}
	c := redact.NewContent(r.rules)
	for piece, err := range pieces {
		if err != nil {
			return err
		}
		c.Add(piece)
	}
	if len(c.Hits) > 0 {
		r.blobs[blob.Ref] = c.Hits
		delete(r.sealed, blob.Ref) // it is in one place as it was sent, so it is known
	}
	return nil
}

// dropBlobs removes the blobs in which something was found. The events that refer to them say so by now.
func (r *one) dropBlobs(ctx context.Context) error {
	for ref := range r.blobs {
		r.done.Blobs++
		if r.cfg.DryRun {
			continue
		}
		if r.cfg.Objects != nil && r.place.Day != "" {
			if err := r.cfg.Objects.DropLarge(ctx, r.key, r.place.Day, ref); err != nil {
				return err
			}
		}
		if r.cfg.Blobs != nil {
			if err := r.cfg.Blobs.EraseBlob(ctx, r.key, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageOfLetters is how many dead letters are read at once.
const pageOfLetters = 20

// letters changes the dead letters of the run.
func (r *one) letters(ctx context.Context) error {
	return r.cleanLetters(ctx, deadletter.Query{Tenant: r.key.Tenant, Run: r.key.Run}, r.rules, &r.done)
}

// cleanLetters changes the dead letters of a query, and counts them. Without a tenant it is those that belong to none.
func (s *Scrubber) cleanLetters(ctx context.Context, q deadletter.Query, rules *redact.Rules, done *Done) error {
	q.Limit, q.Bodies = pageOfLetters, true
	for {
		list, err := s.cfg.Letters.FindDeadLetters(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			if list[i].Key.Tenant != q.Tenant {
				continue
			}
			changed, sealed := cleanLetter(rules, &list[i])
			if sealed {
				done.Sealed.Letters++
			}
			if !changed {
				continue
			}
			done.Letters++
			if s.cfg.DryRun {
				continue
			}
			if err := s.cfg.Letters.RewriteDeadLetter(ctx, &list[i]); err != nil {
				return err
			}
		}
		if len(list) < q.Limit {
			return nil
		}
		q.After = &list[len(list)-1]
	}
}

// cleanLetter hides what the rules find in a dead letter, and reports whether there was anything, and whether the letter has
// something that cannot be looked into.
func cleanLetter(rules *redact.Rules, l *deadletter.Stored) (changed, hasSealed bool) {
	body, hits, hasSealed := cleanBytes(rules, l.Body)
	l.Body = body
	clean := func(s string) string {
		text, found := rules.Text(s)
		hits = append(hits, found...)
		return text
	}
	l.Detail, l.Error = clean(l.Detail), clean(l.Error)
	for name, values := range l.Header {
		for i := range values {
			l.Header[name][i] = clean(values[i])
		}
	}
	return len(hits) > 0, hasSealed
}

// CleanUnnamedLetters changes the dead letters that belong to no run, by the rules of the tenant "*".
func (s *Scrubber) CleanUnnamedLetters(ctx context.Context) (done Done, err error) {
	if rules := s.cfg.Rules("*"); rules != nil {
		err = s.cleanLetters(ctx, deadletter.Query{}, rules, &done)
	}
	return done, err
}
