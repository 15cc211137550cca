package threads

import "agentstream/edge/protocol"

func (a *api) stateRoutes() []protocol.Route { return nil }
