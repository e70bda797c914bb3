package lifetime

import "sync"

// room are functions that return unused memory to the system.
var room struct {
	sync.Mutex // a leaf
	last       int
	all        map[int]func()
}

// OnMakeRoom has [MakeRoom] call f until stop.
func OnMakeRoom(f func()) (stop func()) {
	room.Lock()
	defer room.Unlock()
	room.last++
	n := room.last
	if room.all == nil {
		room.all = map[int]func(){}
	}
	room.all[n] = f
	return func() {
		room.Lock()
		defer room.Unlock()
		delete(room.all, n)
	}
}

// MakeRoom returns memory to the system after a call has failed because there was none: the first time it calls the
// functions of [OnMakeRoom], then it also has the garbage collector find objects that were dropped without Close.
// tries is how often it was called for the same call. It returns false where more tries are useless. Call it with
// nothing locked.
func MakeRoom(tries int) bool {
	if tries == 4 {
		return false
	}
	if tries > 0 {
		Collect()
	}
	room.Lock()
	all := make([]func(), 0, len(room.all))
	for _, f := range room.all {
		all = append(all, f)
	}
	room.Unlock()
	for _, f := range all {
		f()
	}
	return true
}
