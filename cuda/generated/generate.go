// Package generated holds no code: it says how the raw packages below it are
// made. Each is named after the API it binds, and after its major version where
// a newer one is another API.
package generated

//go:generate go run ../../gen -cuda 13.5 -api driver -out driver -package driver -frozen driver/names.txt
//go:generate go run ../../gen -cuda 12.9 -api runtime -out cudart12 -package cudart12 -frozen cudart12/names.txt
//go:generate go run ../../gen -cuda 13.5 -api runtime -out cudart13 -package cudart13 -frozen cudart13/names.txt
//go:generate go run ../../gen -cuda 13.5 -api nvrtc -out nvrtc -package nvrtc -frozen nvrtc/names.txt
//go:generate go run ../../gen -cuda 13.5 -api nvjitlink -out nvjitlink -package nvjitlink -frozen nvjitlink/names.txt
//go:generate go run ../../gen -cuda 13.5 -api library_types -out librarytypes -package librarytypes
//go:generate go run ../../gen -cuda 13.5 -api nccl -out nccl -package nccl -frozen nccl/names.txt
//go:generate go run ../../gen -cuda 13.5 -api cublas -out cublas -package cublas -frozen cublas/names.txt
//go:generate go run ../../gen -cuda 13.5 -api cublaslt -out cublaslt -package cublaslt -frozen cublaslt/names.txt
//go:generate go run ../../gen -cuda 13.5 -api cufft -out cufft -package cufft -frozen cufft/names.txt
//go:generate go run ../../gen -cuda 13.5 -api curand -out curand -package curand -frozen curand/names.txt
//go:generate go run ../../gen -cuda 13.5 -api cupti_activity -out cupti -package cupti -frozen cupti/names.txt
//go:generate go run ../../gen -cuda 13.5 -api nvml -out nvml -package nvml -frozen nvml/names.txt
