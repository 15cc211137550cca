package contracts

import (
	"bytes"
	_ "embed" // the files are parts of the program
	"slices"
)

var (
	//go:embed openapi.yaml
	native []byte
	//go:embed routes.yaml
	others []byte
	//go:embed asyncapi.yaml
	asyncAPI []byte
)

// OpenAPI returns the description of all routes: openapi.yaml, with the paths and the schemas of routes.yaml before its
// own.
func OpenAPI() []byte {
	schemas, paths := []byte("\n  schemas:\n"), []byte("\npaths:\n")
	_, rest, ok := bytes.Cut(others, schemas)
	theirs, routes, ok2 := bytes.Cut(rest, paths)
	head, rest, ok3 := bytes.Cut(native, paths)
	middle, ours, ok4 := bytes.Cut(rest, schemas)
	if !ok || !ok2 || !ok3 || !ok4 {
		return native // TestOpenAPIHasEveryRoute fails
	}
	return slices.Concat(head, paths, routes, middle, schemas, theirs, []byte("\n"), ours)
}

// AsyncAPI returns the description of what taps read.
func AsyncAPI() []byte { return asyncAPI }
