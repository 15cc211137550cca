package schema

import (
	"bytes"
	"encoding/json"

	"agentstream/schema/jsonscan"
)

// SurelyConforms reports whether a payload, which is valid JSON, is what the JSON Schema of a catalogued type asks
// for. false proves nothing: a validator must decide. It understands the few keywords that the catalogue is written
// with, and leaves to the validator whatever is unusual; it allocates nothing. plain is false when UnknownFields may
// find something.
func SurelyConforms(typ string, payload []byte) (sure, plain bool) {
	i, ok := catalogueIndex[typ]
	if !ok {
		return false, true
	}
	c := conformance[i]
	if c == nil || c.unsure || c.fields == nil || len(payload) == 0 || payload[0] != '{' {
		return c.isAllowed(payload), c == nil || c.fields == nil
	}
	return c.scanFields(payload)
}

// addedFields are what adapters of this project add to what a provider says, to events of several types.
var addedFields = map[string]bool{
	"message_id": true, "content_block_index": true, "call_id": true, "model_call_id": true, "provider_call_id": true,
	"response_id":   true,
	"finish_reason": true, "choices": true, "conversation": true, "continues": true, "attempts": true, "omitted": true,
	"omitted_bytes": true, "unrecorded": true,
}

// UnknownFields appends the names of a payload's fields that neither the schema of its catalogued type names nor
// adapters add. Fields of objects within it are not looked at. The names are in the order of the payload; dst has most
// at the end at most.
func UnknownFields(dst []string, typ string, payload []byte, most int) []string {
	i, ok := catalogueIndex[typ]
	if !ok || conformance[i] == nil || conformance[i].fields == nil {
		return dst
	}
	_ = eachField(payload, func(name string, _ []byte) error { // what is no object has no fields
		if _, known := conformance[i].fields[name]; !known && !addedFields[name] && len(dst) < most {
			dst = append(dst, name)
		}
		return nil
	})
	return dst
}

// conform is a compiled JSON Schema. nil allows everything.
type conform struct {
	kinds    kind // 0: all
	enum     []string
	filled   bool // minLength 1
	positive bool // minimum 0
	required uint64
	fields   map[string]conformField
	items    *conform
	unsure   bool // there is a keyword that is not known here
}

type conformField struct {
	bit    uint64 // of its own
	schema *conform
}

// kind is a set of JSON types.
type kind uint8

const (
	kindString kind = 1 << iota
	kindNumber
	kindInteger // every number that is written as one is both
	kindObject
	kindArray
	kindBool
	kindNull
)

var kindNames = map[string]kind{
	"string": kindString, "number": kindNumber, "integer": kindInteger, "object": kindObject,
	"array": kindArray, "boolean": kindBool, "null": kindNull,
}

var conformance = func() []*conform {
	all := make([]*conform, len(catalogue))
	for i, t := range catalogue {
		all[i] = compileConform([]byte(t.Schema))
	}
	return all
}()

// compileConform reads a schema. What it does not understand makes it unsure.
func compileConform(raw []byte) *conform {
	var words map[string]json.RawMessage
	if json.Unmarshal(raw, &words) != nil {
		return &conform{unsure: true}
	}
	if len(words) == 0 {
		return nil
	}
	c := new(conform)
	for word, v := range words {
		if !c.read(word, v) {
			c.unsure = true
		}
	}
	// Without a type these apply to some values and not to others.
	structured := c.fields != nil || c.items != nil || c.required != 0
	if one := c.kinds&(c.kinds-1) == 0; structured && (c.kinds == 0 || !one) || (c.filled || c.positive) && c.kinds == 0 {
		c.unsure = true
	}
	return c
}

func (c *conform) read(word string, v json.RawMessage) bool {
	switch word {
	case "type":
		names := []string{""}
		if json.Unmarshal(v, &names[0]) != nil && json.Unmarshal(v, &names) != nil {
			return false
		}
		for _, n := range names {
			c.kinds |= kindNames[n]
		}
		return c.kinds != 0
	case "enum":
		return json.Unmarshal(v, &c.enum) == nil && len(c.enum) > 0
	case "minLength":
		c.filled = string(v) == "1"
		return c.filled
	case "minimum":
		c.positive = string(v) == "0"
		return c.positive
	case "items":
		c.items = compileConform(v)
		return true
	case "properties":
		var fields map[string]json.RawMessage
		if json.Unmarshal(v, &fields) != nil {
			return false
		}
		for name, s := range fields {
			f := c.field(name)
			f.schema = compileConform(s)
			c.fields[name] = f
		}
		return len(c.fields) <= 64
	case "required":
		var names []string
		if json.Unmarshal(v, &names) != nil {
			return false
		}
		for _, n := range names {
			c.required |= c.field(n).bit
		}
		return len(c.fields) <= 64
	}
	return false
}

// field returns the place of a name, making it.
func (c *conform) field(name string) conformField {
	if c.fields == nil {
		c.fields = make(map[string]conformField)
	}
	f, ok := c.fields[name]
	if !ok {
		f.bit = 1 << len(c.fields)
		c.fields[name] = f
	}
	return f
}

// isAllowed reports whether a value is certain to be as the schema wants it.
func (c *conform) isAllowed(v []byte) bool {
	if c == nil {
		return true
	}
	if c.unsure || len(v) == 0 {
		return false
	}
	k := kindOf(v)
	if c.kinds != 0 && c.kinds&k == 0 {
		return false
	}
	if c.enum != nil {
		return k == kindString && c.isListed(v)
	}
	switch k {
	case kindString:
		return !c.filled || len(v) > len(`""`)
	case kindObject:
		if c.fields == nil {
			return true
		}
		allowed, _ := c.scanFields(v)
		return allowed
	case kindArray:
		return c.items == nil || c.areItemsAllowed(v)
	case kindNumber, kindNumber | kindInteger:
		return !c.positive || v[0] != '-'
	}
	return true
}

// kindOf looks at the first byte. A number with a fraction or an exponent may be a whole one all the same: that
// is left to the validator.
func kindOf(v []byte) kind {
	switch v[0] {
	case '"':
		return kindString
	case '{':
		return kindObject
	case '[':
		return kindArray
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	}
	if bytes.ContainsAny(v, ".eE") {
		return kindNumber
	}
	return kindNumber | kindInteger
}

// isListed reports whether a string is one of the enumeration.
func (c *conform) isListed(v []byte) bool {
	for _, s := range c.enum {
		if string(v[1:len(v)-1]) == s {
			return true
		}
	}
	return false
}

// scanFields reports whether the fields of an object are allowed, and, of those that are, whether the schema names all
// of them. It leaves names with escapes, which may be other spellings, to the validator.
func (c *conform) scanFields(obj []byte) (allowed, plain bool) {
	var seen uint64
	plain = true
	for i := jsonscan.SkipSpace(obj, 1); i < len(obj) && obj[i] != '}'; {
		name, value, end := jsonscan.RawMember(obj, i)
		if end < 0 || bytes.IndexByte(name, '\\') >= 0 {
			return false, false
		}
		f, known := c.fields[string(name[1:len(name)-1])]
		if !known {
			plain = false
		} else if !f.schema.isAllowed(value) {
			return false, false
		}
		seen |= f.bit
		i = jsonscan.Behind(obj, end)
	}
	return seen&c.required == c.required, plain
}

// areItemsAllowed is isAllowed of all elements of a list.
func (c *conform) areItemsAllowed(list []byte) bool {
	for i := jsonscan.SkipSpace(list, 1); i < len(list) && list[i] != ']'; {
		end := jsonscan.SkipValue(list, i)
		if end < 0 || !c.items.isAllowed(list[i:end]) {
			return false
		}
		i = jsonscan.Behind(list, end)
	}
	return true
}
