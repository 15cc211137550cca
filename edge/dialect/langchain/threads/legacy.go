package threads

import "agentstream/edge/protocol"

func (a *api) legacyRoutes() []protocol.Route { return nil }

func (a *api) legacyStreams() []stream { return nil }
