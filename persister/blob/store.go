package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"agentstream/schema"
)

// Answers of a Store.
var (
	// ErrNotFound reports that there is no such object.
	ErrNotFound = errors.New("no such object")
	// ErrExists reports that there is an object of that name already.
	ErrExists = errors.New("object exists")
)

// Store keeps objects. Names are those of Name and LargeName. Implementations are safe for concurrent use, and the
// errors they give hold no credentials.
type Store interface {
	// Put makes an object of all that body gives; its length need not be known. The object appears
	// whole or not at all. It is never changed: a name that is taken is ErrExists, except on a server
	// that cannot tell, where the object is replaced.
	Put(ctx context.Context, name string, body io.Reader) error
	// Read returns length bytes from an offset, or the last length bytes when the offset is negative,
	// and the size of the whole object. Fewer bytes are given only where the object ends.
	Read(ctx context.Context, name string, offset, length int64) (data []byte, size int64, err error)
	// Delete removes an object. One that is not there is removed.
	Delete(ctx context.Context, name string) error
	// List walks the objects whose names begin with prefix. It is for audits and slow.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is what a Store lists.
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
}

const suffix = ".jsonl.zst"

// Name names the object of a run's events up to last: <tenant>/<day>/<run>.<last>.jsonl.zst. All parts
// are of letters, digits, - and _.
func Name(key schema.RunKey, day string, last schema.Seq) string {
	return key.Tenant + "/" + day + "/" + key.Run + "." + last.String() + suffix
}

// ParseName takes a name apart; what Name cannot have made is an error.
func ParseName(name string) (key schema.RunKey, day string, last schema.Seq, err error) {
	bad := fmt.Errorf("blob: %q names no object of a run", name)
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return key, "", 0, bad
	}
	file, ok := strings.CutSuffix(parts[2], suffix)
	run, number, dot := strings.Cut(file, ".")
	last, err = schema.ParseCursor(number)
	key, day = schema.RunKey{Tenant: parts[0], Run: run}, parts[1]
	if !ok || !dot || err != nil || last < 1 || schema.ValidTenant(key.Tenant) != nil || schema.ValidRunID(run) != nil ||
		!validDay(day) || Name(key, day, last) != name {
		return schema.RunKey{}, "", 0, bad
	}
	return key, day, last, nil
}

// nameIn returns the name within the URI of an object: its last three parts. What stands before says
// where the object was when it was written; objects are looked for in the store that is configured,
// so that a folder may be moved and a bucket copied.
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
