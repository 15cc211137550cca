#!/usr/bin/env bash
# The steps of "Disabled Control" of the page on incremental streaming: the same commands for a Session without
# increments. FLAG is what is said of incremental_streaming_enabled: false, or nothing at all when it is empty.
# BASE_URL, QODER_PAT, AGENT_ID, AGENT_VERSION and ENVIRONMENT_ID come from the environment; what each step prints
# goes to a file in $OUT.
set -euo pipefail
# What still runs ends with the script, where it leads a process group of its own.
trap 'trap "" TERM; kill -- -$$ 2>/dev/null || true' EXIT

until_idle() {
  while IFS= read -r -t 60 -u "$1" line; do
    echo "$line"
    case "$line" in '{"type":"session.status_idle"'*) return ;; esac
  done
  echo "the stream has no session.status_idle" >&2
  return 1
}

# Create another Session without incremental_streaming_enabled, or set it to false.
SESSION_JSON=$(
  jq -n \
    --arg agent_id "$AGENT_ID" \
    --argjson agent_version "$AGENT_VERSION" \
    --arg environment_id "$ENVIRONMENT_ID" \
    --arg flag "$FLAG" \
    '{
      agent: {id: $agent_id, type: "agent", version: $agent_version},
      environment_id: $environment_id,
      title: "incremental streaming verification"
    } + if $flag == "" then {} else {incremental_streaming_enabled: ($flag | fromjson)} end' |
  curl -s -X POST "$BASE_URL/sessions" \
    -H "Authorization: Bearer $QODER_PAT" \
    -H "Content-Type: application/json" \
    --data-binary @-
)

export SESSION_ID=$(echo "$SESSION_JSON" | jq -r '.id')
echo "$SESSION_JSON" | jq '{incremental_streaming_enabled}' >"$OUT/session.json"

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

# After sending the same user.message,
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

# stream and history should contain full events such as agent.message and session.status_idle, but not the
# incremental event types.
until_idle "${STREAM[0]}" >"$OUT/stream.txt"

curl -s "$BASE_URL/sessions/$SESSION_ID/events?limit=200" \
  -H "Authorization: Bearer $QODER_PAT" |
jq -r '.data[].type' >"$OUT/history.txt"

export THREAD_ID=$(
  curl -s "$BASE_URL/sessions/$SESSION_ID/threads?limit=20" \
    -H "Authorization: Bearer $QODER_PAT" |
  jq -r '.data[0].id'
)

curl -s "$BASE_URL/sessions/$SESSION_ID/threads/$THREAD_ID/events?limit=200" \
  -H "Authorization: Bearer $QODER_PAT" |
jq -r '.data[].type' >"$OUT/thread_history.txt"

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
