// Package profile records what the GPUs of a process do, and writes it as tables and as a timeline for Perfetto
// (ui.perfetto.dev):
//
//	r, err := profile.Start(profile.Options{})
//	...
//	t, err := r.Stop()
//	err = t.WriteSummary(os.Stdout)
//	err = t.WriteTrace(file)
//
// It records kernels, copies and fills, including those of graphs and of libraries such as cuBLAS, the calls that
// enqueued them, and the waits of package safe. [Begin] names a part of the program: the timeline shows it around its
// calls, and the tables have the time of the GPU work that was enqueued in it. Nsight Systems and runtime/trace show
// it, too.
//
// [Handler] serves a recording over HTTP, and [Tests] adds the flag -cudaprofile to the tests of a package.
//
// A recording uses CUPTI, which comes with the CUDA toolkit. Without a toolkit, get it by "go run
// github.com/cudabind/cudabind/tools/libs@latest get cupti". Where it is missing, [Start] returns a
// [cupti.LibraryError]. To load it from another folder, call [cupti.Open] first. Recordings need Linux; ranges work
// everywhere.
package profile
