// What a chat looks like, whichever library it is made with.
import { useState } from "react";

/** messages are { id, role, text }; say and stop are what a person does. */
export function View({ status, messages, error, say, stop, children }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    say(text);
    setText("");
  };
  return (
    <>
      <h1 id="status">{status}</h1>
      {messages.map((m) => <p key={m.id} data-role={m.role}>{m.text}</p>)}
      {children}
      {error && <div id="error" role="alert">{String(error.message ?? error)}</div>}
      <form onSubmit={submit}>
        <input name="text" value={text} onChange={(event) => setText(event.target.value)} placeholder="Say something" required />
        <button>Send</button>
        <button type="button" id="stop" onClick={stop}>Stop</button>
      </form>
    </>
  );
}
