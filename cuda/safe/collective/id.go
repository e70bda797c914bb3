package collective

import "github.com/cudabind/cudabind/cuda/generated/nccl"

// UniqueID identifies a communicator that is yet to be made: see Options.IDs.
type UniqueID [nccl.NCCL_UNIQUE_ID_BYTES]byte

// NewUniqueID creates an identifier for a communicator, which the program gives to all ranks. NCCL serves it from this
// process, by a socket and a thread, until all ranks have joined.
//
// It returns an error that matches errors.ErrUnsupported if there is no NCCL library, and [safe.ErrInCallback] in a
// host function. Source: ncclGetUniqueId.
func NewUniqueID() (UniqueID, error) {
	const op = "collective.NewUniqueID"
	if err := mayWait(op); err != nil {
		return UniqueID{}, err
	}
	id, err := newID()
	return id.Internal, named(op, err)
}

// identifiers makes the identifiers of a communicator: one, or several to connect many ranks.
type identifiers func() ([]nccl.NcclUniqueId, error)

// one has a single identifier.
func one(identify func() (nccl.NcclUniqueId, error)) identifiers {
	return func() ([]nccl.NcclUniqueId, error) {
		id, err := identify()
		return []nccl.NcclUniqueId{id}, err
	}
}

// exchanged has those that the program has exchanged.
func exchanged(ids []UniqueID) identifiers {
	all := make([]nccl.NcclUniqueId, len(ids))
	for i, id := range ids {
		all[i].Internal = id
	}
	return func() ([]nccl.NcclUniqueId, error) { return all, nil }
}

// make has NCCL make the communicator.
func (c *core) make(ids []nccl.NcclUniqueId) error {
	if len(ids) == 1 {
		return nccl.NcclCommInitRankConfig(c.raw, int32(c.size), ids[0], int32(c.rank), options())
	}
	return nccl.NcclCommInitRankScalable(c.raw, int32(c.size), int32(c.rank), int32(len(ids)), &ids[0], options())
}
