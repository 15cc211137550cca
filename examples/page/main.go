package main

import (
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"time"
)

//go:embed index.html
var page []byte

// handler serves the page.
func handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // a browser that has left needs none
	})
}

func main() {
	fmt.Println("http://127.0.0.1:3000/?run=demo")
	server := &http.Server{Addr: "127.0.0.1:3000", Handler: handler(), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
