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

// MakeRoom calls the functions of [OnMakeRoom], which return memory to the system. Call it with nothing locked.
func MakeRoom() {
	room.Lock()
	all := make([]func(), 0, len(room.all))
	for _, f := range room.all {
		all = append(all, f)
	}
	room.Unlock()
	for _, f := range all {
		f()
	}
}
