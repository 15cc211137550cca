package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"agentstream/schema"
)

// Decode sets fields of the struct that v points to: from the parameters of the query, then from the body, a JSON object, then
// from the values of the path. Names are compared without regard to case; those that no field has are passed over. Fields that
// parameters set are of the types string, []string, int, schema.Seq, or bool, for which a parameter without a value is true.
// The error wraps ErrBadRequest, or schema.ErrBadCursor.
func (in Input) Decode(v any) error {
	s := reflect.ValueOf(v).Elem()
	for _, name := range slices.Sorted(maps.Keys(in.Query)) {
		if err := setField(s, name, in.Query[name]); err != nil {
			return err
		}
	}
	if in.Body != nil && json.Unmarshal(in.Body, v) != nil {
		return Refuse(ErrBadRequest, "not an object with fields of the right types")
	}
	for name, value := range in.Path {
		if err := setField(s, name, []string{value}); err != nil {
			return err
		}
	}
	return nil
}

// setField sets the field with a name, if there is one.
func setField(s reflect.Value, name string, values []string) (err error) {
	f := s.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
	if !f.CanSet() {
		return nil
	}
	if list, ok := f.Addr().Interface().(*[]string); ok {
		*list = values
		return nil
	}
	if len(values) != 1 {
		return Refuse(ErrBadRequest, "%s is there more than once", name)
	}
	switch p := f.Addr().Interface().(type) {
	case *string:
		*p = values[0]
	case *bool:
		if *p = values[0] == ""; !*p {
			*p, err = strconv.ParseBool(values[0])
		}
	case *int:
		*p, err = strconv.Atoi(values[0])
	case *schema.Seq:
		if *p, err = schema.ParseCursor(values[0]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return Refuse(ErrBadRequest, "%s is not a value of its type", name)
	}
	return nil
}
