package persister

import "agentstream/schema"

// Place says where the events of a run are. A run's rows begin behind Floor. What lies at or below it is
// in the blob, except for what has expired, which is nowhere.
//
//	1 ……… Expired │ Expired+1 ……… Floor │ Floor+1 ……… Last
//	    gone              blob alone        rows; up to Archived in the blob as well
type Place struct {
	Day      string     // of the run: names its partition; "" when there is no such run
	Last     schema.Seq // newest event stored
	Archived schema.Seq // the blob at URI holds the events 1 to Archived; 0: there is no blob
	URI      string
	Floor    schema.Seq // rows up to here have left the tables and are not written again
	Expired  schema.Seq // events up to here are gone everywhere
	Deleted  bool       // the run is to be forgotten: readers are told that there is none
}
