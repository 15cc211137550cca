package assemble

// Kind is what a Transition is.
type Kind uint8

// The kinds. Of each pair the second follows the first before the run ends, and belongs to the same lane.
const (
	// TurnBegin and TurnEnd enclose a turn of a lane. A lane has one turn at a time. ID is the turn's id, "" when it
	// has none.
	TurnBegin Kind = iota + 1
	TurnEnd
	// MessageOpen and MessageClose enclose a message. A lane has one message open at a time; a message that has only
	// an end opens and closes within its record, beside one that is open. Value of MessageClose is the content, a JSON
	// list of blocks or a string; nil when it is not known.
	MessageOpen
	MessageClose
	// BlockOpen and BlockClose enclose a block of a message. Value of BlockOpen is the block as it begins, a JSON
	// object. Nothing of a block follows its BlockClose. That comes with the message's end when the content may still
	// have more of the block than was streamed.
	BlockOpen
	BlockClose
	// BlockText is a piece of a block's text, or of the input of its call when Input is set. Text is the inside of a
	// JSON string; a low surrogate stands before it when Low is not 0.
	BlockText
	// BlockPart means, with Limits.Text, that the text of a block is not kept any longer: it or the texts of all blocks
	// would be too long. Text is what was streamed of the block since it opened, or since its last BlockPart. A
	// piece that is too long by itself is a part of its own. Text of a BlockClose is what was streamed since then.
	BlockPart
	// BlockInput is the whole input of a call of which nothing was streamed. Value is JSON.
	BlockInput
	// BlockSignature and BlockCitations are what a block has beside its text. Value is a string, or a list.
	BlockSignature
	BlockCitations
	// BlockEnd is the producer's end of a block, as often as it says so. Value is the payload of the block.end.
	BlockEnd
	// CallAsk means that a model has begun to ask for a call of a tool. CallStart and CallEnd enclose its execution.
	// A call that is not asked for may start, and one that does not start ends with CallEnd as well.
	CallAsk
	CallStart
	CallEnd
	// CallRun means that the tool of a call that has started works now. It comes once between CallStart and CallEnd, or
	// not at all: not every producer says so.
	CallRun
	// ModelStart and ModelEnd enclose a request to a model, TaskStart and TaskEnd a task.
	ModelStart
	ModelEnd
	TaskStart
	TaskEnd
	// InputRequest and InputAnswer enclose a request for input of a person.
	InputRequest
	InputAnswer
	// ChildBegin means that a child has become known, ChildEnd that its state is final. Both are of the child's lane.
	// A child that goes on after its end begins again.
	ChildBegin
	ChildEnd
	// StateChange means that a lane has another state, which is Lane.State. Value is the payload of the run.lifecycle;
	// nil when a message to a run that has ended begins it again.
	StateChange
	// UsageAdd is what a message or a request to a model has used. Value is a JSON object.
	UsageAdd
)

// Transition is one step of a run, out of one record. What it points at belongs to the Run and to the record: it is
// valid until the next record is handed in, and must not be changed.
type Transition struct {
	Kind Kind
	// Repaired reports that no producer recorded it: the Run concluded it.
	Repaired bool
	Input    bool   // with BlockText: it is a piece of a call's input
	First    bool   // with BlockText: it is the first piece that is not empty
	Low      uint16 // with BlockText
	Lane     *Lane
	Message  *Message // of messages and blocks
	Block    *Block   // of blocks
	Item     *Item    // of calls, requests to models, tasks and requests for input
	ID       string   // of turns
	Text     []byte
	Value    []byte
}
