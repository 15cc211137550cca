package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Family groups types that a reader treats alike.
type Family string

// The families, in the order of the catalogue.
const (
	FamilyReasoning  Family = "reasoning"
	FamilyText       Family = "text"
	FamilyTool       Family = "tool"
	FamilyStep       Family = "step"
	FamilyChild      Family = "child"
	FamilyPlan       Family = "plan"
	FamilyLifecycle  Family = "lifecycle"
	FamilyMessage    Family = "message"
	FamilyData       Family = "data"
	FamilyModel      Family = "model"
	FamilyTurn       Family = "turn"
	FamilyInput      Family = "input"
	FamilyState      Family = "state"
	FamilyCheckpoint Family = "checkpoint"
	FamilyTask       Family = "task"
	FamilyProgress   Family = "progress"
	FamilyCommand    Family = "command"
	FamilyLoss       Family = "loss"
	FamilySession    Family = "session"
	FamilyCustom     Family = "custom"
)

// Names of types that code here or elsewhere treats by name.
const (
	TypeReasoningDelta  = "reasoning.delta"
	TypeTextDelta       = "text.delta"
	TypeToolStart       = "tool.start"
	TypeToolEnd         = "tool.end"
	TypeToolRun         = "tool.run"
	TypeToolInputDelta  = "tool.input.delta"
	TypeToolOutputDelta = "tool.output.delta"
	TypeStepBoundary    = "step.boundary"
	TypeChildSpawn      = "child.spawn"
	TypePlanProposal    = "plan.proposal"
	TypeRunLifecycle    = "run.lifecycle"
	TypeMessageStart    = "message.start"
	TypeMessageEnd      = "message.end"
	TypeBlockStart      = "block.start"
	TypeBlockEnd        = "block.end"
	TypeDataDelta       = "data.delta"
	TypeModelStart      = "model.start"
	TypeModelEnd        = "model.end"
	TypeTurnStart       = "turn.start"
	TypeTurnEnd         = "turn.end"
	TypeInputRequested  = "input.requested"
	TypeInputAnswered   = "input.answered"
	TypeStateValues     = "state.values"
	TypeStateUpdate     = "state.update"
	TypeCheckpoint      = "checkpoint.created"
	TypeTaskStart       = "task.start"
	TypeTaskEnd         = "task.end"
	TypeProgress        = "progress"
	TypeCommandMessage  = "command.message"
	TypeCommandsTaken   = "commands.taken"
	TypeLoss            = "loss"

	TypeSessionCreated  = "session.created"
	TypeSessionUpdated  = "session.updated"
	TypeSessionArchived = "session.archived"
	TypeSessionDeleted  = "session.deleted"
)

// TypeInfo is one row of the catalogue.
type TypeInfo struct {
	Name   string
	Family Family
	// Delta events are pieces of something that a later event holds whole; neighbours of one type
	// and child may be merged, and a reader that lags may be spared them (native §4 R1, R4).
	Delta bool
	// Control events go at once and are never merged or dropped (native §4 R3). Every type is a
	// delta or a control event.
	Control bool
	// Terminal types can end a run; whether one does is in its payload (run.lifecycle state).
	Terminal bool
	// Late events may follow the end of a run, which stays ended: they are about the session, and nobody has to act
	// on them.
	Late bool
	// Command types are what people say to an agent, or decide about its session: whoever writes one needs the scope
	// command. All others are an agent's own, which a producer may write.
	Command bool
	// Native is one of the eight types of the published protocol (native §3).
	Native bool
	// Schema is the JSON Schema (draft 2020-12) of the payload. Unknown fields are always allowed.
	Schema string
}

// customPrefix opens the one namespace that needs no row in the catalogue.
const customPrefix = "custom."

// maxTypeName bounds a type's name, in bytes.
const maxTypeName = 100

// Lookup returns the row of a type. custom.* types are control events of FamilyCustom. Any other
// unknown name wraps ErrUnknownType (KAI-STREAM-PROTO-0002).
func Lookup(name string) (TypeInfo, error) {
	if i, ok := catalogueIndex[name]; ok {
		return catalogue[i], nil
	}
	if strings.HasPrefix(name, customPrefix) && len(name) > len(customPrefix) && validTypeName(name) == nil {
		return TypeInfo{Name: name, Family: FamilyCustom, Control: true, Schema: objectSchema}, nil
	}
	return TypeInfo{}, fmt.Errorf("type %s: %w", quote(name), ErrUnknownType)
}

// Types returns the catalogue in its order. The caller owns the slice.
func Types() []TypeInfo { return slices.Clone(catalogue) }

// IsCommand reports whether a type is one of those that need the scope command (TypeInfo.Command).
func IsCommand(typ string) bool {
	i, ok := catalogueIndex[typ]
	return ok && catalogue[i].Command
}

// IsDelta reports, without allocating, whether a record's type is a delta.
func (r Record) IsDelta() bool {
	i, ok := catalogueIndex[string(r.Type)]
	return ok && catalogue[i].Delta
}

// validTypeName accepts lower-case words joined by dots: what a reader may meet in a log that is
// newer than itself. It keeps line breaks and quotes out of frames.
func validTypeName(s string) error {
	if s == "" || len(s) > maxTypeName {
		return fmt.Errorf("type %s: %w", quote(s), ErrUnknownType)
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '.' && !tokenByte[c] {
			return fmt.Errorf("type %s: %w", quote(s), ErrUnknownType)
		}
	}
	return nil
}

var catalogueIndex = func() map[string]int {
	m := make(map[string]int, len(catalogue))
	for i, t := range catalogue {
		m[t.Name] = i
	}
	return m
}()
