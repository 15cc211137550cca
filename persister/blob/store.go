package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"agentstream/schema"
)

// Errors of a Store.
var (
	// ErrNotFound reports that the object does not exist.
	ErrNotFound = errors.New("no such object")
	// ErrExists reports that an object of that name exists already.
	ErrExists = errors.New("object exists")
)

// ObjectStore keeps objects. Their names are those of Name and LargeName. Implementations are safe for
// concurrent use, and their errors contain no credentials.
type ObjectStore interface {
	// Put creates an object with all bytes of body, whose length need not be known. The object appears completely or
	// not at all. It is never changed: the error wraps ErrExists when the name is taken, except with a server that
	// cannot check that and replaces the object.
	Put(ctx context.Context, name string, body io.Reader) error
	// Read returns length bytes from an offset, or the last length bytes when the offset is negative, and the size of
	// the whole object. It returns fewer bytes only at the end of the object.
	Read(ctx context.Context, name string, offset, length int64) (data []byte, size int64, err error)
	// Delete removes an object. Deleting one that does not exist is no error.
	Delete(ctx context.Context, name string) error
	// List iterates over the objects whose names begin with prefix. It is slow, and meant for audits.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is an object in a list.
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
}

const suffix = ".jsonl.zst"

// Name returns the name of the object of a run's events up to last: <tenant>/<day>/<run>.<last>.jsonl.zst. All parts
// consist of letters, digits, - and _.
func Name(key schema.RunKey, day string, last schema.Seq) string {
	return key.Tenant + "/" + day + "/" + key.Run + "." + last.String() + suffix
}

// nameRevision returns the name of an object that takes the place of another one of the same events: the name of Name with .r1,
// .r2 and so on before its suffix. 0 is the first one.
func nameRevision(key schema.RunKey, day string, last schema.Seq, revision int) string {
	name := Name(key, day, last)
	if revision == 0 {
		return name
	}
	return strings.TrimSuffix(name, suffix) + ".r" + strconv.Itoa(revision) + suffix
}

// revisionOf returns the revision in a name that ParseName accepts.
func revisionOf(name string) int {
	_, digits, _ := strings.Cut(strings.TrimSuffix(name, suffix), ".r")
	n, _ := strconv.Atoi(digits) // "" is 0
	return n
}

// ParseName parses a name of Name, also of a later revision. Any other name is an error.
func ParseName(name string) (key schema.RunKey, day string, last schema.Seq, err error) {
	bad := fmt.Errorf("blob: %q names no object of a run", name)
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return key, "", 0, bad
	}
	file, ok := strings.CutSuffix(parts[2], suffix)
	run, number, dot := strings.Cut(file, ".")
	number, _, _ = strings.Cut(number, ".")
	last, err = schema.ParseCursor(number)
	key, day = schema.RunKey{Tenant: parts[0], Run: run}, parts[1]
	if !ok || !dot || err != nil || last < 1 || schema.ValidTenant(key.Tenant) != nil || schema.ValidRunID(run) != nil ||
		!validDay(day) || nameRevision(key, day, last, revisionOf(name)) != name {
		return schema.RunKey{}, "", 0, bad
	}
	return key, day, last, nil
}

// nameIn returns the name in the URI of an object: its last three parts. The parts before them say where the object
// was written. Objects are read from the store that is configured now, so that a folder may be moved and a bucket
// copied.
func nameIn(uri string, key schema.RunKey) (name string, last schema.Seq, err error) {
	_, path, ok := strings.Cut(uri, ":")
	parts := strings.Split(path, "/")
	if !ok || len(parts) < 3 {
		return "", 0, fmt.Errorf("blob: run %s: URI %q names no object", key, uri)
	}
	name = strings.Join(parts[len(parts)-3:], "/")
	of, _, last, err := ParseName(name)
	if err == nil && of != key {
		err = fmt.Errorf("blob: run %s: URI %q is of another run", key, uri)
	}
	return name, last, err
}
