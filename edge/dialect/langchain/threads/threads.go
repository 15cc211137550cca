package threads

import "agentstream/edge/protocol"

func (a *api) threadRoutes() []protocol.Route { return nil }
