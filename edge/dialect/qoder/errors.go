package qoder

import "agentstream/edge/dialect"

// AppendError writes {"type":"error","request_id":…,"error":{"type","message",…}} (qoder §1.3).
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }
