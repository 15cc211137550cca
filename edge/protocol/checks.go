package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"agentstream/edge/ends"
	"agentstream/schema"
)

// payloadChecks holds the compiled JSON Schema of each control type, and of data.delta, whose fields readers need. The
// other deltas are too many for it; what readers need of them schema.Event.CheckNew has looked at.
type payloadChecks struct {
	byType map[string]*jsonschema.Schema
	words  *message.Printer
}

func compilePayloadChecks(types []schema.TypeInfo) (*payloadChecks, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	v := &payloadChecks{byType: make(map[string]*jsonschema.Schema), words: message.NewPrinter(language.English)}
	for _, t := range types {
		if !t.Control && t.Name != schema.TypeDataDelta {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(t.Schema))
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", t.Name, err)
		}
		url := "catalogue:" + t.Name
		if err := c.AddResource(url, doc); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", t.Name, err)
		}
		if v.byType[t.Name], err = c.Compile(url); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", t.Name, err)
		}
	}
	return v, nil
}

// check holds an event's payload to its type's schema. The error wraps schema.ErrMalformed and says
// which field. The validator is asked only about what is not plainly right: it costs more than all the rest of
// an append. plain is false when schema.UnknownFields may find something.
func (v *payloadChecks) check(e *schema.Event) (plain bool, err error) {
	payload := []byte(e.Payload)
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	sure, plain := schema.SurelyConforms(e.Type, payload)
	if sure || v.byType[e.Type] == nil {
		return plain, nil
	}
	return plain, v.validate(e.Type, payload)
}

// validate asks the validator.
func (v *payloadChecks) validate(typ string, payload []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return fmt.Errorf("the payload of %s is not JSON: %w", typ, schema.ErrMalformed)
	}
	err = v.byType[typ].Validate(doc)
	if err == nil {
		return nil
	}
	var bad *jsonschema.ValidationError
	if !errors.As(err, &bad) {
		return fmt.Errorf("%s is not as its type has it: %w", typ, schema.ErrMalformed)
	}
	for len(bad.Causes) > 0 {
		bad = bad.Causes[0]
	}
	field := pointer(append([]string{"payload"}, bad.InstanceLocation...))
	words := strings.ReplaceAll(bad.ErrorKind.LocalizedString(v.words), ": ", " ")
	return &ends.FieldError{Field: field, Err: fmt.Errorf("%s of %s: %s: %w", field, typ, ends.Clip(words),
		schema.ErrMalformed)}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		_, _ = pointerEscapes.WriteString(&b, p)
	}
	return ends.Clip(b.String())
}
