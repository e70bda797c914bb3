package profile

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/internal/activity"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// session is the process's subscription to CUPTI.
type session struct {
	subscriber cupti.CUpti_SubscriberHandle
	kinds      []cupti.CUpti_ActivityKind
	dropped    uint64 // records, once it has ended
}

// flushForced makes a flush hand over buffers whose records are not all complete.
const flushForced = 1

func (s *session) begin(o Options) error {
	err := cupti.CuptiSubscribe(&s.subscriber, cupti.CUpti_CallbackFunc(activity.Ignored()), nil)
	if errors.Is(err, cupti.CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) || errors.Is(err, cupti.CUPTI_ERROR_MAX_LIMIT_REACHED) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		s.subscriber = 0
		return rt.Simulated(fmt.Errorf("cuptiSubscribe: %w", err))
	}
	if err := cupti.CuptiSetThreadIdType(cupti.CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM); err != nil {
		return fmt.Errorf("cuptiSetThreadIdType: %w", err)
	}
	err = cupti.CuptiActivityRegisterCallbacks(cupti.CUpti_BuffersCallbackRequestFunc(activity.Requested()), cupti.CUpti_BuffersCallbackCompleteFunc(activity.Completed()))
	if err != nil {
		return fmt.Errorf("cuptiActivityRegisterCallbacks: %w", err)
	}
	_ = cupti.CuptiActivityGetNumDroppedRecords(0, 0, &s.dropped) // those of before
	for _, k := range kinds(o) {
		if err := s.enable(k); err != nil {
			return err
		}
	}
	return nil
}

// kinds are the kinds of records. Graphs are recorded node by node, since CUDA crashes if
// CUPTI records launches as a whole and an executable is from before the recording. Calls of the driver are all recorded, and
// chosen when they are read: CUPTI ignores a choice of its own if the process has a context already. Overhead of CUPTI is not
// recorded, as some of its records come with memory that C's free would have to free.
func kinds(o Options) []cupti.CUpti_ActivityKind {
	all := []cupti.CUpti_ActivityKind{
		cupti.CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, cupti.CUPTI_ACTIVITY_KIND_MEMCPY, cupti.CUPTI_ACTIVITY_KIND_MEMCPY2,
		cupti.CUPTI_ACTIVITY_KIND_MEMSET, cupti.CUPTI_ACTIVITY_KIND_DRIVER,
	}
	if o.AllCalls {
		all = append(all, cupti.CUPTI_ACTIVITY_KIND_RUNTIME)
	}
	return all
}

func (s *session) enable(k cupti.CUpti_ActivityKind) error {
	if err := cupti.CuptiActivityEnable(k); err != nil {
		return fmt.Errorf("cuptiActivityEnable(%v): %w", k, err)
	}
	s.kinds = append(s.kinds, k)
	return nil
}

// matter has the calls that are recorded without Options.AllCalls. The names decide, so that later versions of
// functions are among them.
var matter = []string{"cuLaunch", "cuGraphLaunch", "cuGraphInstantiate", "cuGraphExecUpdate", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree",
	"cuMemPrefetch", "cuModuleLoad", "cuLibraryLoad", "cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuMemHostAlloc", "cuMemHostRegister"}

func matters(name string) bool {
	for _, p := range matter {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// disable ends the recording of calls and work that begin from now on.
func (s *session) disable() (err error) {
	for _, k := range s.kinds {
		err = errors.Join(err, cupti.CuptiActivityDisable(k))
	}
	return err
}

// The end of a recording sleeps for passing ms until calls have written their records, and for settling ms at most while
// work is in progress. Sleeps are counted, not time: when the machine is so busy that calls stop, they take longer, too.
const (
	passing  = 10
	settling = 100
)

// settle has CUPTI hand over the records of all work that has completed, after disable. CUPTI keeps buffers with records of
// work in progress.
//
// From CUDA 13.0 on, a flush frees a thread's buffer even if the thread is about to write a record there, which then
// crashes (seen on busy machines). So there is no flush until calls have passed that place.
func (s *session) settle() error {
	for range passing {
		time.Sleep(time.Millisecond)
	}
	for i := 0; i < settling && activity.Lent() > 0; i++ {
		if err := cupti.CuptiActivityFlushAll(0); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// end ends the subscription, after settle, and has CUPTI hand over what that has left: work in progress, without its times.
func (s *session) end() (err error) {
	if s.subscriber == 0 {
		return nil
	}
	if activity.Lent() > 0 {
		err = cupti.CuptiActivityFlushAll(flushForced)
	}
	err = errors.Join(err, cupti.CuptiActivityGetNumDroppedRecords(0, 0, &s.dropped), cupti.CuptiUnsubscribe(s.subscriber))
	s.subscriber = 0
	return err
}

// callName is the name of a function, "" for none.
func callName(domain cupti.CUpti_CallbackDomain, id cupti.CUpti_CallbackId) string {
	var p *byte
	if err := cupti.CuptiGetCallbackName(domain, uint32(id), &p); err != nil || p == nil {
		return ""
	}
	return ffi.GoString(p)
}

// sameText tells whether C's text is s.
func sameText(p *byte, s string) bool {
	for i := range len(s) {
		if *(*byte)(unsafe.Add(unsafe.Pointer(p), i)) != s[i] {
			return false
		}
	}
	return *(*byte)(unsafe.Add(unsafe.Pointer(p), len(s))) == 0
}
