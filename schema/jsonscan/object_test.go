package jsonscan_test

import (
	"encoding/json"
	"testing"

	"agentstream/schema/jsonscan"
)

func TestObject(t *testing.T) {
	o := append(jsonscan.Object("before "), '{')
	o = o.Str("s", `a"b`).NullStr("n", "").NullStr("m", "x").OptStr("none", "").OptStr("some", "y").Int("i",
		-3).Float("f", 1e21).Bool("b", true)
	o = o.Raw("null", nil).Raw("raw", []byte(`[1]`)).OptRaw("none", nil).OptRaw("opt", []byte(`{}`)).Inner("inner",
		[]byte(`\n`), []byte(`z`))
	o = append(append(o.Name("list"), '[', '{').Members([]byte(`{"left":1,"out":2,"es\"c":3}`), "out").End(), ']').End()
	const want = `before {"s":"a\"b","n":null,"m":"x","some":"y","i":-3,"f":1000000000000000000000,"b":true,"null":null,"raw":[1],"opt":{},"inner":"\nz","list":[{"left":1,"es\"c":3}]}`
	if string(o) != want {
		t.Errorf("%s\nwant %s", o, want)
	}
	if !json.Valid(o[len("before "):]) {
		t.Error("it is no JSON")
	}
}
