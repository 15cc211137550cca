package seal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"iter"

	"agentstream/schema"
)

// A sealed line ends with
//
//	"$sealed":"1.<version>.<month>.<check>.<salt>.<text>.$"}}
//
// where check tells keys apart that have one name, and text is base64url of AES-256-GCM over what the line would have had after the number. What is authenticated with
// it is the tenant and all of the line before the text.
const (
	sealedName = `"$sealed":"`
	format     = "1."
	sealedEnd  = `.$"}}`
	saltBytes  = 16
	nonceBytes = 12
	tagBytes   = 16
)

var encoding = base64.RawURLEncoding

// saltChars is the length of a salt as text.
var saltChars = encoding.EncodedLen(saltBytes)

// Sealer seals the events of one pack. It is for one goroutine.
type Sealer struct {
	gcm    cipher.AEAD
	tenant string
	head   string // what stands before the text: format, key and salt
	aad    []byte
	whole  []byte // the line without encryption
	text   []byte // what is sealed of it
}

// Sealer returns what seals the events of the next pack of a tenant; nil when they are not sealed.
func (k *Keys) Sealer(ctx context.Context, tenant string) (*Sealer, error) {
	if !k.Has(tenant) {
		return nil, nil
	}
	name := k.current(tenant)
	key, err := k.get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	var salt [saltBytes]byte
	rand.Read(salt[:]) // never fails
	gcm, err := newGCM(key.sub(forPack, salt[:]))
	if err != nil {
		return nil, err
	}
	head := format + keyText(key.version, name.month) + "." + key.check() + "." + encoding.EncodeToString(salt[:]) + "."
	return &Sealer{gcm: gcm, tenant: tenant, head: head}, nil
}

// What a key is derived for.
const (
	forPack = "agentstream pack 1"
	forBlob = "agentstream blob 1"
)

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return cipher.NewGCM(block)
}

// nonce is the number of an event, or of a piece of a blob.
func nonce(n uint64) (b [nonceBytes]byte) {
	binary.BigEndian.PutUint64(b[nonceBytes-8:], n)
	return b
}

// AppendNumbered is schema.Event.AppendNumbered for an event of which only the envelope and Clear are to be read. The
// error wraps schema.ErrMalformed: the event is not in the form of the log.
func (s *Sealer) AppendNumbered(dst []byte, e *schema.Event, id []byte, ts, run string, seq schema.Seq) ([]byte, error) {
	s.whole = e.AppendNumbered(s.whole[:0], id, ts, run, seq)
	r, err := schema.ScanLine(s.whole)
	if err != nil {
		return dst, fmt.Errorf("seal: %w", err)
	}
	plain := r.Rest()
	shown := cutEnvelope(e)
	s.text = Clear(s.text[:0], e.Type, e.Payload)
	shown.Payload = s.text
	begin := len(dst)
	dst = shown.AppendNumbered(dst, id, ts, run, seq)
	dst = dst[:len(dst)-1] // the brace of the line; the payload has none yet
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(append(dst, sealedName...), s.head...)
	s.aad = associate(s.aad[:0], s.tenant, dst[begin:])
	number := nonce(uint64(seq))
	s.text = s.gcm.Seal(s.text[:0], number[:], plain, s.aad)
	return append(encoding.AppendEncode(dst, s.text), sealedEnd...), nil
}

// unsealed is most of what schema.Event.Size counts for the beginning of a line, which is not sealed.
const unsealed = 400

// headBytes bounds what stands before a text, with its name and its end.
const headBytes = 64

// Size bounds the sealed line of an event, in bytes.
func Size(e *schema.Event) int {
	rest := e.Size() - len(e.Payload) - len(e.Extra)
	hidden := e.Size() - unsealed
	return rest + min(len(e.Payload), mostClear) + headBytes + encoding.EncodedLen(hidden+tagBytes)
}

// associate appends what is authenticated besides the text.
func associate(dst []byte, tenant string, line []byte) []byte {
	return append(append(append(dst, tenant...), 0), line...)
}

// IsSealed reports whether a line of the log is sealed.
func IsSealed(line []byte) bool { return bytes.HasSuffix(line, []byte(sealedEnd)) && start(line) > 0 }

// IsWhole reports whether a pack was made by a Sealer: whether its last line is sealed, for a pack is sealed whole.
func IsWhole(p *schema.Pack) bool {
	return bytes.HasSuffix(p.Body, []byte(sealedEnd+"\n"))
}

// HasForm reports whether a payload ends as a sealed one does. Nobody but a Sealer may make one.
func HasForm(payload []byte) bool {
	return bytes.HasSuffix(payload, []byte(sealedEnd[:len(sealedEnd)-1])) && bytes.Contains(payload, []byte(sealedName))
}

// start returns where the value of $sealed begins; -1 when the line has none.
func start(line []byte) int {
	i := bytes.LastIndexByte(line[:len(line)-len(sealedEnd)], '"') + 1
	if !bytes.HasSuffix(line[:i], []byte(sealedName)) {
		return -1
	}
	return i
}

// Open returns a pack with its sealed lines as they would have been stored without encryption. A pack without any is
// returned itself. The error wraps schema.ErrKeyGone, schema.ErrUnavailable or schema.ErrBadPack.
func (k *Keys) Open(ctx context.Context, p schema.Pack) (schema.Pack, error) {
	if k == nil || !bytes.Contains(p.Body, []byte(sealedEnd)) {
		return p, nil
	}
	o := opener{k: k, tenant: p.Key.Tenant}
	body := make([]byte, 0, len(p.Body))
	for line := range schema.Lines(p.Body) {
		var err error
		if body, err = o.appendLine(ctx, body, line); err != nil {
			return schema.Pack{}, fmt.Errorf("seal: open run %s, pack of seq %d: %w", p.Key, p.First, err)
		}
		body = append(body, '\n')
	}
	p.Body = body
	return p, nil
}

// OpenAll opens the packs of a walk. It ends with the first that cannot be opened.
func (k *Keys) OpenAll(ctx context.Context, packs iter.Seq2[schema.Pack, error]) iter.Seq2[schema.Pack, error] {
	if k == nil {
		return packs
	}
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range packs {
			if err == nil {
				p, err = k.Open(ctx, p)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// OpenLine opens one line of a run of the tenant, which may be one that is not sealed.
func (k *Keys) OpenLine(ctx context.Context, tenant string, line []byte) ([]byte, error) {
	if k == nil || !IsSealed(line) {
		return line, nil
	}
	o := opener{k: k, tenant: tenant}
	return o.appendLine(ctx, make([]byte, 0, len(line)), line)
}

// opener opens lines, of which neighbours mostly have one key.
type opener struct {
	k      *Keys
	tenant string
	head   []byte // of the key at hand
	gcm    cipher.AEAD
	aad    []byte
	text   []byte
}

// appendLine appends a line, opened where it is sealed.
func (o *opener) appendLine(ctx context.Context, dst, line []byte) ([]byte, error) {
	if !bytes.HasSuffix(line, []byte(sealedEnd)) {
		return append(dst, line...), nil
	}
	at := start(line)
	if at < 0 {
		return append(dst, line...), nil
	}
	value := line[at : len(line)-len(sealedEnd)]
	n := bytes.LastIndexByte(value, '.') + 1
	if err := o.use(ctx, value[:n]); err != nil {
		return dst, err
	}
	r, err := schema.ScanLine(line)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", schema.ErrBadPack, err)
	}
	text, err := encoding.AppendDecode(o.text[:0], value[n:])
	if err != nil {
		return dst, fmt.Errorf("seq %d: sealed text: %w", r.Seq, schema.ErrBadPack)
	}
	o.aad = associate(o.aad[:0], o.tenant, line[:at+n])
	number := nonce(uint64(r.Seq))
	plain, err := o.gcm.Open(text[:0], number[:], text, o.aad)
	o.text = text
	if err != nil {
		return dst, fmt.Errorf("seq %d: it is not what was sealed: %w", r.Seq, schema.ErrBadPack)
	}
	dst = append(dst, line[:len(line)-len(r.Rest())]...)
	return append(dst, plain...), nil
}

// use derives the key that sealed content names, unless it is at hand.
func (o *opener) use(ctx context.Context, head []byte) error {
	if o.gcm != nil && bytes.Equal(head, o.head) {
		return nil
	}
	name, check, salt, ok := parseHead(o.tenant, head)
	if !ok {
		return fmt.Errorf("sealed in a form that this program does not know: %w", schema.ErrBadPack)
	}
	key, err := o.k.open(ctx, name, check)
	if err != nil {
		return err
	}
	o.gcm, err = newGCM(key.sub(forPack, salt))
	o.head = append(o.head[:0], head...)
	return err
}

// parseHead reads what stands before a sealed text.
func parseHead(tenant string, head []byte) (name keyName, check string, salt []byte, ok bool) {
	parts := bytes.Split(head, []byte{'.'})
	if len(parts) != 6 || string(parts[0])+"." != format || len(parts[4]) != saltChars || len(parts[5]) > 0 {
		return keyName{}, "", nil, false
	}
	if name, ok = parseKey(tenant, string(parts[1]), string(parts[2])); !ok {
		return keyName{}, "", nil, false
	}
	salt, err := encoding.DecodeString(string(parts[4]))
	return name, string(parts[3]), salt, err == nil
}
