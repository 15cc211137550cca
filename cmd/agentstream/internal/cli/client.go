package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/edge/secure"
)

// CurlCredential is what signs a request in a command that a person copies: the shell reads the token where the
// commands read it.
const CurlCredential = `-H "Authorization: Bearer $AGENTSTREAM_TOKEN" `

// ServerFlags say which server a command talks to, and as whom.
type ServerFlags struct {
	Server    string        `help:"Address of the server." env:"AGENTSTREAM_SERVER" default:"http://127.0.0.1:8080"`
	Token     string        `help:"Bearer token. A file or the environment keeps it out of the process list." env:"AGENTSTREAM_TOKEN" placeholder:"TOKEN"`
	TokenFile string        `help:"File that holds the bearer token; wins over --token." type:"path" placeholder:"FILE"`
	CA        string        `name:"ca" help:"File with the authorities of the server's certificate, in place of those of the system." env:"AGENTSTREAM_CA" type:"path" placeholder:"FILE"`
	GiveUp    time.Duration `help:"Give up when the server has not answered for this long; 0 never." default:"2m"`
	Wait      bool          `help:"Wait as long for a server that cannot be reached to begin with, too."`
}

// Notice prints one line for the person who waits. It must be safe for concurrent use where the
// client is used so.
type Notice func(format string, args ...any)

// NewClient checks the flags; its errors name them.
func NewClient(f ServerFlags, say Notice) (*agentstream.Client, error) {
	token := f.Token
	if f.TokenFile != "" {
		text, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	cfg := agentstream.Config{BaseURL: f.Server, Token: token, GiveUp: f.GiveUp, FailFast: !f.Wait,
		UserAgent: "agentstream/" + Version()}
	if f.CA != "" {
		pool, err := secure.ReadPool(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		cfg.RootCAs = pool
	}
	if say != nil {
		cfg.Hooks = hooks(say)
	}
	c, err := agentstream.New(cfg)
	switch {
	case errors.Is(err, agentstream.ErrBaseURL):
		return nil, fmt.Errorf("--server: %w", err)
	case errors.Is(err, agentstream.ErrToken):
		return nil, fmt.Errorf("--token: %w", err)
	case err != nil:
		return nil, fmt.Errorf("--give-up: %w", err)
	}
	return c, nil
}

// hooks tell the person who waits what the client does on its own.
func hooks(say Notice) agentstream.Hooks {
	return agentstream.Hooks{
		Retrying: func(cause error, wait time.Duration) {
			say("%s; again in %s", terminal.Sanitize(cause.Error()), wait.Round(time.Millisecond))
		},
		Duplicate: func(seq, cursor int64) { say("seq %d came again behind %d; passed over", seq, cursor) },
		PassedOver: func(cause error) {
			say("a frame is no event and was passed over: %s", terminal.Sanitize(cause.Error()))
		},
		Unconfirmed: func(error) {
			say("the run said that it is over; nobody answers who could confirm it")
		},
	}
}
