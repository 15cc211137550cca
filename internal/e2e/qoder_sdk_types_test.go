package e2e_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/packages/respjson"
)

// fits checks an answer against the library's own types: each field that they require is there, null at least,
// and each field that is there is of its type. The library itself passes over both.
func fits(t *testing.T, what string, answer any) {
	t.Helper()
	for _, complaint := range misfits(what, reflect.ValueOf(answer)) {
		t.Error(complaint)
	}
}

var timeType = reflect.TypeFor[time.Time]()

func misfits(path string, v reflect.Value) (out []string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return misfits(path, v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, misfits(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
		}
		return out
	case reflect.Struct:
	default:
		return nil
	}
	if variant := v.MethodByName("AsAny"); variant.IsValid() { // a union: the variant that it names
		if one := variant.Call(nil)[0]; !one.IsNil() {
			return misfits(path, one.Elem())
		}
		return nil
	}
	meta := v.FieldByName("JSON")
	if v.Type() == timeType || !meta.IsValid() {
		return nil
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := meta.FieldByName(f.Name)
		if name == "" || name == "-" || !field.IsValid() {
			continue
		}
		is, ok := field.Interface().(respjson.Field)
		switch at := path + "." + name; {
		case !ok:
		case is.Valid():
			out = append(out, misfits(at, v.Field(i))...)
		case is.Raw() == "" && f.Tag.Get("api") == "required":
			out = append(out, at+" is missing")
		case is.Raw() != "" && is.Raw() != respjson.Null:
			out = append(out, at+" is "+is.Raw())
		}
	}
	return out
}
