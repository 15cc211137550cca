package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"agentstream/schema"
)

// Bounds of what a file may hold. Expressions are RE2: their time is linear in the text, and these bound the factor.
const (
	MaxFile     = 1 << 20 // bytes of the file
	MaxRules    = 64      // of a tenant
	MaxPattern  = 1 << 10 // bytes of an expression
	MaxCompiled = 16_384  // instructions of all compiled expressions of a tenant
	MaxTenants  = 10_000
	maxName     = 64
	maxTypes    = 64 // of a rule
)

// everybody is the key of the rules of tenants without an entry of their own.
const everybody = "*"

// ErrRules reports that a file does not hold rules.
var ErrRules = errors.New("not a file of redaction rules")

// Rule is one rule as the file has it: exactly one of Known, Pattern and Path.
type Rule struct {
	Name    string   `json:"name"`
	Known   []string `json:"known,omitempty"`   // kinds of known secrets, see Kinds
	Pattern string   `json:"pattern,omitempty"` // RE2, looked for in every text
	Path    string   `json:"path,omitempty"`    // of the payload, see parsePath
	Types   []string `json:"types,omitempty"`   // event types that it is for, "tool.*" for a family; none: all
}

// tenantRules is what a file has of a tenant.
type tenantRules struct {
	Rules []Rule `json:"rules"`
}

// Book holds the rules of all tenants.
type Book struct{ tenants map[string]*Rules }

// Rules are the compiled rules of one tenant.
type Rules struct {
	list  []compiled
	kinds [kindCount]int // rule that looks for a kind, -1: none
	known bool           // one of kinds is looked for
	texts bool           // something is looked for in texts
	loose bool           // an expression may match anything: every text is looked at
	paths bool

	hasLiterals bool // an expression begins with letters of its own
}

// compiled is a rule that was checked.
type compiled struct {
	name    string
	mark    string // what stands in the place of what was found
	pattern *regexp.Regexp
	literal string // that every match of pattern begins with
	path    []step
	types   []string
}

// Parse reads the rules of all tenants. The error wraps ErrRules and names the tenant and the rule.
func Parse(data []byte) (*Book, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%d bytes, %d allowed: %w", len(data), MaxFile, ErrRules)
	}
	var file map[string]tenantRules
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("more than one JSON object: %w", ErrRules)
	}
	if len(file) > MaxTenants {
		return nil, fmt.Errorf("%d tenants, %d allowed: %w", len(file), MaxTenants, ErrRules)
	}
	b := &Book{tenants: make(map[string]*Rules, len(file))}
	for tenant, e := range file {
		if tenant != everybody {
			if err := schema.ValidTenant(tenant); err != nil {
				return nil, fmt.Errorf("tenant %.64q: %w: %w", tenant, ErrRules, err)
			}
		}
		rules, err := compile(e.Rules)
		if err != nil {
			return nil, fmt.Errorf("tenant %s: %w", tenant, err)
		}
		b.tenants[tenant] = rules
	}
	return b, nil
}

// Of returns the rules of a tenant, those of "*" where it has no entry of its own; nil where nothing is to be hidden.
func (b *Book) Of(tenant string) *Rules {
	if b == nil {
		return nil
	}
	if r, ok := b.tenants[tenant]; ok {
		return r
	}
	return b.tenants[everybody]
}

// Tenants returns the names that the file has, sorted.
func (b *Book) Tenants() (names []string) {
	for name := range b.tenants {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Names returns the names of the rules, in their order.
func (r *Rules) Names() (names []string) {
	if r == nil {
		return nil
	}
	for i := range r.list {
		names = append(names, r.list[i].name)
	}
	return names
}

// compile checks the rules of a tenant; nil where there are none.
func compile(list []Rule) (*Rules, error) {
	if len(list) > MaxRules {
		return nil, fmt.Errorf("%d rules, %d allowed: %w", len(list), MaxRules, ErrRules)
	}
	if len(list) == 0 {
		return nil, nil
	}
	r := &Rules{}
	for i := range r.kinds {
		r.kinds[i] = -1
	}
	size, names := 0, map[string]bool{}
	for _, rule := range list {
		if names[rule.Name] {
			return nil, fmt.Errorf("rule %s: it is there twice: %w", rule.Name, ErrRules)
		}
		names[rule.Name] = true
		n, err := r.add(rule)
		if err != nil {
			return nil, fmt.Errorf("rule %.64q: %w", rule.Name, err)
		}
		size += n
		if size > MaxCompiled {
			return nil, fmt.Errorf("rule %s: more than %d instructions in all expressions: %w", rule.Name, MaxCompiled, ErrRules)
		}
	}
	return r, nil
}

// add compiles a rule, and returns how many instructions its expression has.
func (r *Rules) add(rule Rule) (size int, err error) {
	if !validName(rule.Name) {
		return 0, fmt.Errorf("a name is 1 to %d of the characters a-z 0-9 _ . -: %w", maxName, ErrRules)
	}
	if len(rule.Types) > maxTypes {
		return 0, fmt.Errorf("%d types, %d allowed: %w", len(rule.Types), maxTypes, ErrRules)
	}
	c := compiled{name: rule.Name, mark: "[redacted:" + rule.Name + "]", types: rule.Types}
	given := 0
	if len(rule.Known) > 0 {
		given++
		err = r.addKnown(rule.Known)
	}
	if rule.Pattern != "" {
		given++
		size, err = c.setPattern(rule.Pattern)
		r.texts = true
		r.loose = r.loose || len(c.literal) < minLiteral
		r.hasLiterals = r.hasLiterals || len(c.literal) >= minLiteral
	}
	if rule.Path != "" {
		given++
		c.path, err = parsePath(rule.Path)
		r.paths = true
	}
	if given != 1 {
		return 0, fmt.Errorf("it needs exactly one of known, pattern and path: %w", ErrRules)
	}
	r.list = append(r.list, c)
	return size, err
}

// addKnown notes that the next rule looks for kinds of known secrets.
func (r *Rules) addKnown(names []string) error {
	for _, name := range names {
		i := slices.Index(kindNames[:], name)
		if i < 0 {
			return fmt.Errorf("known %.64q is none of %s: %w", name, strings.Join(kindNames[:], ", "), ErrRules)
		}
		if r.kinds[i] >= 0 {
			return fmt.Errorf("known %s is looked for by another rule: %w", name, ErrRules)
		}
		r.kinds[i] = len(r.list)
	}
	r.known, r.texts = true, true
	return nil
}

// minLiteral is the shortest beginning of an expression by which texts are passed over that do not hold it.
const minLiteral = 3

// setPattern compiles an expression, and returns how many instructions it has.
func (c *compiled) setPattern(text string) (size int, err error) {
	if len(text) > MaxPattern {
		return 0, fmt.Errorf("pattern of %d bytes, %d allowed: %w", len(text), MaxPattern, ErrRules)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRules, err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRules, err)
	}
	size = len(program.Inst)
	if size > MaxCompiled {
		return 0, fmt.Errorf("pattern of %d instructions, %d allowed: %w", size, MaxCompiled, ErrRules)
	}
	if c.pattern, err = regexp.Compile(text); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRules, err)
	}
	if c.pattern.MatchString("") {
		return 0, fmt.Errorf("the pattern matches the empty text: %w", ErrRules)
	}
	c.literal, _ = c.pattern.LiteralPrefix()
	return size, nil
}

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// isFor reports whether a rule is for events of a type.
func (c *compiled) isFor(typ string) bool {
	if len(c.types) == 0 {
		return true
	}
	for _, t := range c.types {
		if family, ok := strings.CutSuffix(t, "*"); t == typ || ok && strings.HasPrefix(typ, family) {
			return true
		}
	}
	return false
}
