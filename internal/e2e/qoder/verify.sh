#!/usr/bin/env bash
# The steps of "Quick Verification" of the page on incremental streaming, with its own commands. BASE_URL, QODER_PAT,
# AGENT_ID, AGENT_VERSION and ENVIRONMENT_ID come from the environment; what each step prints goes to a file in $OUT.
# What the page does in a second terminal runs in the background here, until the session is idle.
set -euo pipefail
# What still runs ends with the script, where it leads a process group of its own.
trap 'trap "" TERM; kill -- -$$ 2>/dev/null || true' EXIT

# until_idle prints what comes from a file descriptor, up to the end of the turn.
until_idle() {
  while IFS= read -r -t 60 -u "$1" line; do
    echo "$line"
    case "$line" in '{"type":"session.status_idle"'*) return ;; esac
  done
  echo "the stream has no session.status_idle" >&2
  return 1
}

# Create a Session with incremental streaming enabled:
SESSION_JSON=$(
  jq -n \
    --arg agent_id "$AGENT_ID" \
    --argjson agent_version "$AGENT_VERSION" \
    --arg environment_id "$ENVIRONMENT_ID" \
    '{
      agent: {id: $agent_id, type: "agent", version: $agent_version},
      environment_id: $environment_id,
      title: "incremental streaming verification",
      incremental_streaming_enabled: true
    }' |
  curl -s -X POST "$BASE_URL/sessions" \
    -H "Authorization: Bearer $QODER_PAT" \
    -H "Content-Type: application/json" \
    --data-binary @-
)

export SESSION_ID=$(echo "$SESSION_JSON" | jq -r '.id')
echo "$SESSION_JSON" | jq '{id, incremental_streaming_enabled, status}' >"$OUT/session.json"

# Open the Session SSE stream in one terminal:
coproc STREAM {
curl -sN "$BASE_URL/sessions/$SESSION_ID/events/stream" \
  -H "Authorization: Bearer $QODER_PAT" \
  -H "Accept: text/event-stream" |
while IFS= read -r line; do
  case "$line" in
    event:*) echo "$line" ;;
    data:*) echo "${line#data: }" | jq -cr '{type, message_id, index, block_type: .content_block.type, delta_type: .delta.type, text: .delta.text, thinking: .delta.thinking, partial_json: .delta.partial_json}' ;;
  esac
done
}

# Send a user message from another terminal:
curl -s -X POST "$BASE_URL/sessions/$SESSION_ID/events" \
  -H "Authorization: Bearer $QODER_PAT" \
  -H "Content-Type: application/json" \
  -d '{
    "events": [
      {
        "type": "user.message",
        "content": [
          {"type": "text", "text": "Reply with exactly one short sentence."}
        ]
      }
    ]
  }' | jq >"$OUT/sent.json"

# The stream should show the incremental sequence before the final full events:
until_idle "${STREAM[0]}" >"$OUT/stream.txt"

# Verify historical replay:
curl -s "$BASE_URL/sessions/$SESSION_ID/events?limit=200" \
  -H "Authorization: Bearer $QODER_PAT" |
jq -r '.data[].type' |
grep -E 'agent\.message_start|agent\.content_block_delta|agent\.message_stop' >"$OUT/history.txt"

# Verify thread-scoped replay and stream:
export THREAD_ID=$(
  curl -s "$BASE_URL/sessions/$SESSION_ID/threads?limit=20" \
    -H "Authorization: Bearer $QODER_PAT" |
  jq -r '.data[0].id'
)

curl -s "$BASE_URL/sessions/$SESSION_ID/threads/$THREAD_ID/events?limit=200" \
  -H "Authorization: Bearer $QODER_PAT" |
jq -r '.data[].type' |
grep -E 'agent\.message_start|agent\.content_block_delta|agent\.message_stop' >"$OUT/thread_history.txt"

# To watch the thread-scoped live stream, use the same parser loop against the thread stream endpoint:
exec {THREAD}< <(
curl -sN "$BASE_URL/sessions/$SESSION_ID/threads/$THREAD_ID/stream" \
  -H "Authorization: Bearer $QODER_PAT" \
  -H "Accept: text/event-stream" |
while IFS= read -r line; do
  case "$line" in
    event:*) echo "$line" ;;
    data:*) echo "${line#data: }" | jq -cr '{type, message_id, index, block_type: .content_block.type, delta_type: .delta.type, text: .delta.text, thinking: .delta.thinking, partial_json: .delta.partial_json}' ;;
  esac
done
)
until_idle "$THREAD" >"$OUT/thread_stream.txt"
