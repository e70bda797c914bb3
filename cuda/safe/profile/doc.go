// Package profile records what the GPUs of a process do, and writes it as tables and as a
// timeline for Perfetto (ui.perfetto.dev):
//
//	r, err := profile.Start(profile.Options{})
//	...
//	t, err := r.Stop()
//	err = t.WriteSummary(os.Stdout)
//	err = t.WriteTrace(file)
//
// It records kernels, copies and fills, also those of graphs, the calls that enqueued them, also those of
// libraries such as cuBLAS, and the waits of package safe. [Begin] names a part of the
// program: the timeline shows it around its calls, the tables have the time of the GPU's work that was
// enqueued in it, Nsight Systems shows it, and so does runtime/trace.
//
// [Handler] serves a recording over HTTP, and [Tests] adds the flag -cudaprofile to the tests of a package.
//
// A recording uses CUPTI, which comes with the CUDA toolkit, or by
// "go run github.com/cudabind/cudabind/tools/libs@latest get cupti". Where it is missing, [Start] returns a
// [cupti.LibraryError]; to load it from a certain folder, call [cupti.Open] before.
// Recordings need Linux; ranges work everywhere.
package profile
