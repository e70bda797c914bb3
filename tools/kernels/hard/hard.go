// Package hard has kernels with everything that is hard to bind, for tests of tools/kernels.
package hard

//go:generate go run .. -doubles -I include -kernels asked<float> -kernels "asked<Box<int>>" -flag -device-int128 hard.cu newer.cu shapes.cu
