package persister_test

import (
	"bytes"
	"testing"

	"agentstream/persister"
)

func TestLetterID(t *testing.T) {
	base := persister.DeadLetter{Stream: "a", Position: 1, Seq: 2, Subject: "s", Body: []byte("b"), Reason: "r"}
	same := base
	same.Detail = "told in other words"
	if !bytes.Equal(base.ID(), same.ID()) {
		t.Error("the text of an error changes the identity")
	}
	for name, change := range map[string]func(*persister.DeadLetter){
		"stream":   func(l *persister.DeadLetter) { l.Stream = "a1" },
		"position": func(l *persister.DeadLetter) { l.Position = 12 },
		"seq":      func(l *persister.DeadLetter) { l.Seq = 0 },
		"subject":  func(l *persister.DeadLetter) { l.Subject = "" },
		"reason":   func(l *persister.DeadLetter) { l.Reason = "sr" },
		"body":     func(l *persister.DeadLetter) { l.Body = []byte("bb") },
	} {
		other := base
		change(&other)
		if bytes.Equal(base.ID(), other.ID()) {
			t.Errorf("another %s is the same letter", name)
		}
	}
}

func TestHeaderBytes(t *testing.T) {
	l := persister.DeadLetter{Header: map[string][]string{"B": {"2", ""}, "A": {"x: y \xff"}}}
	want := "A: x: y \xff\r\nB: 2\r\nB: \r\n"
	if got := string(l.HeaderBytes()); got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	back := persister.DeadLetter{Header: persister.ParseHeaderBytes([]byte(want))}
	if !bytes.Equal(back.HeaderBytes(), []byte(want)) {
		t.Fatalf("read back: %q", back.HeaderBytes())
	}
}
