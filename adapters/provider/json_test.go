package provider

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestFields: order, doubles and spelling of values stay.
func TestFields(t *testing.T) {
	in := ` { "b" : 1.10 , "a":[ 1, {"x":"}"} ],"b":-0.0, "\u0063\"":"\/" , "d":{}, "e":null, "f":true } `
	l, ok := Parse([]byte(in))
	if !ok || len(l) != 7 {
		t.Fatalf("%d Fields", len(l))
	}
	if got := string(l.Encode()); got != `{"b":1.10,"a":[ 1, {"x":"}"} ],"b":-0.0,"c\"":"\/","d":{},"e":null,"f":true}` {
		t.Errorf("%s", got)
	}
	if string(l.Get("b")) != "-0.0" || l.Get("zz") != nil || l.Str(`c"`) != "/" || l.Str("a") != "" {
		t.Error("get")
	}
	if got := string(l.Set("b", json.RawMessage("2")).Get("b")); got != "2" {
		t.Errorf("set: %s", got)
	}
	if got := Elements([]byte(`[ 1 , "a,]" ,[2], {} ]`)); len(got) != 4 ||
		string(bytes.Join([][]byte{got[0], got[1], got[2], got[3]}, nil)) != `1"a,]"[2]{}` {
		t.Errorf("%s", got)
	}
	for _, none := range []string{"[]", "1", `"x"`, "null"} {
		if _, ok := Parse([]byte(none)); ok {
			t.Errorf("%s is an object", none)
		}
	}
}
