package natsjs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// postBatch is messages in the order in which they came.
type postBatch struct {
	posts   []producers.Post
	replies []string // subjects; "" for none
}

func (b *postBatch) add(p producers.Post, reply string) {
	b.posts = append(b.posts, p)
	b.replies = append(b.replies, reply)
}

// keptPosts is for how many messages space is kept for the next batch.
const keptPosts = 256

func (b *postBatch) reset() {
	if cap(b.posts) > keptPosts {
		b.posts, b.replies = nil, nil
		return
	}
	clear(b.posts)
	clear(b.replies)
	b.posts, b.replies = b.posts[:0], b.replies[:0]
}

// inboxServer is what one goroutine uses again for run after run.
type inboxServer struct {
	i       *Inbox
	batch   postBatch
	answers []producers.Answer
	text    []byte
}

// serve does the work of runs, one after another, beginning with q.
func (i *Inbox) serve(ctx context.Context, q *queue) {
	s := &inboxServer{i: i}
	for more := true; more; {
		for i.collect(q, &s.batch) {
			s.handle(ctx, q)
			s.batch.reset()
		}
		if more = i.rest(); more {
			q, more = <-i.work
		}
	}
}

// rest reports whether the goroutine is to wait for another run.
func (i *Inbox) rest() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.idle >= i.cfg.MaxIdle {
		return false
	}
	i.idle++
	return true
}

// collect takes what has come for the run into b, which is empty. When nothing has, the run is left.
func (i *Inbox) collect(q *queue, b *postBatch) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(q.waiting.posts) == 0 {
		delete(i.runs, q.key)
		i.tenants[q.key.Tenant].runs--
		i.forget(q.key.Tenant)
		i.active.Done()
		return false
	}
	*b, q.waiting = q.waiting, *b
	return true
}

// release frees room.
func (i *Inbox) release(q *queue, size int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending -= size
	i.tenants[q.key.Tenant].bytes -= size
	q.held -= size
}

// forget drops the share of a tenant that holds nothing. It needs mu.
func (i *Inbox) forget(tenant string) {
	if *i.tenants[tenant] == (share{}) {
		delete(i.tenants, tenant)
	}
}

// handle answers the batch, in parts of about what one append can store at once.
func (s *inboxServer) handle(ctx context.Context, q *queue) {
	posts, replies := s.batch.posts, s.batch.replies
	for len(posts) > 0 {
		n, size, body := 0, 0, 0
		for n < len(posts) && n < schema.MaxPackEvents && (n == 0 || body+len(posts[n].Body) <= schema.MaxPackBytes) {
			body += len(posts[n].Body)
			size += sizeOf(&posts[n], replies[n])
			n++
		}
		s.answers = s.answerPosts(ctx, q.key, posts[:n], s.answers[:0])
		s.reply(q.key, replies[:n], s.answers)
		clear(s.answers)
		s.i.release(q, size)
		posts, replies = posts[n:], replies[n:]
	}
}

// answerPosts stores posts and appends an answer for each to answers. Once shutting down has taken too long, it
// refuses them.
func (s *inboxServer) answerPosts(ctx context.Context, key schema.RunKey, posts []producers.Post,
	answers []producers.Answer) []producers.Answer {
	if !s.i.late.Load() {
		return s.i.cfg.Take(ctx, key, posts, answers)
	}
	refusal := s.i.cfg.Refuse(producers.ErrClosed)
	for range posts {
		answers = append(answers, producers.Answer{Refusal: refusal})
	}
	return answers
}

func (s *inboxServer) reply(key schema.RunKey, replies []string, answers []producers.Answer) {
	stream := s.i.streamOf(key)
	for n := range answers {
		a := &answers[n]
		if a.Refusal != nil {
			s.i.note(key, replies[n], a.Refusal.Code)
		}
		if replies[n] == "" {
			continue
		}
		s.text = appendAnswer(s.text[:0], stream, a)
		s.i.send(replies[n], s.text)
	}
}

// send answers. When that fails the client asks again, as after any answer that is lost.
func (i *Inbox) send(reply string, text []byte) {
	if err := i.nc.Publish(reply, text); err != nil {
		i.warned.warn("nats ingest: answers cannot be sent", slog.Any("err", err))
	}
}

// turnAway refuses a message that is not handed to its run.
func (i *Inbox) turnAway(key schema.RunKey, reply string, err error) {
	refusal := i.cfg.Refuse(err)
	i.note(key, reply, refusal.Code)
	if reply != "" {
		i.send(reply, appendAnswer(nil, i.streamOf(key), &producers.Answer{Refusal: refusal}))
	}
}

// note counts a message that was refused, and logs one whose sender will get no answer.
func (i *Inbox) note(key schema.RunKey, reply, code string) {
	if h := i.cfg.Hooks.Refused; h != nil {
		h(code)
	}
	if reply == "" {
		i.warned.warn("nats ingest: message refused, its sender is not told", slog.String("run", key.String()),
			slog.String("code", code))
	}
}

// warnings are log lines, of which the first in a while is enough.
type warnings struct {
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	next    time.Time
	skipped int
}

// warn logs unless another line was logged a moment ago; then the next line has how many were not.
func (w *warnings) warn(text string, attrs ...slog.Attr) {
	now := time.Now()
	w.mu.Lock()
	if now.Before(w.next) {
		w.skipped++
		w.mu.Unlock()
		return
	}
	skipped := w.skipped
	w.skipped, w.next = 0, now.Add(w.every)
	w.mu.Unlock()
	w.log.LogAttrs(context.Background(), slog.LevelWarn, text, append(attrs, slog.Int("more", skipped))...)
}
