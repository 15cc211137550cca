package persister

import "agentstream/schema"

// Place describes where the events of a run are stored. Its rows begin after Floor. Events at or below it are in the
// blob, except for those that have expired, which are stored nowhere.
//
//	1 ……… Expired │ Expired+1 ……… Floor │ Floor+1 ……… Last
//	    gone              blob alone        rows; up to Archived in the blob as well
type Place struct {
	Day      string     // of the run, which names its partition; "" when there is no such run
	Last     schema.Seq // newest event stored
	Archived schema.Seq // the blob at URI holds the events 1 to Archived; 0: there is no blob
	URI      string
	Floor    schema.Seq // rows up to this one were removed from the tables and are not written again
	Expired  schema.Seq // events up to this one were removed everywhere
	Deleted  bool       // the run was deleted: for readers it does not exist
}
