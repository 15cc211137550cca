package edge

// OriginAllowed is the check before a WebSocket is opened.
var OriginAllowed = (*Server).originAllowed
