/* What the library exports, as far as the simulated version has it. */
#pragma once

#define FUNCTIONS(F) \
	F(nvrtcGetErrorString) \
	F(nvrtcVersion) \
	F(nvrtcGetNumSupportedArchs) \
	F(nvrtcGetSupportedArchs) \
	F(nvrtcCreateProgram) \
	F(nvrtcDestroyProgram) \
	F(nvrtcCompileProgram) \
	F(nvrtcGetPTXSize) \
	F(nvrtcGetPTX) \
	F(nvrtcGetCUBINSize) \
	F(nvrtcGetCUBIN) \
	F(nvrtcGetLTOIRSize) \
	F(nvrtcGetLTOIR) \
	F(nvrtcGetOptiXIRSize) \
	F(nvrtcGetOptiXIR) \
	F(nvrtcGetProgramLogSize) \
	F(nvrtcGetProgramLog) \
	F(nvrtcAddNameExpression) \
	F(nvrtcGetLoweredName) \
	F(nvrtcGetPCHHeapSize) \
	F(nvrtcSetPCHHeapSize) \
	F(nvrtcGetPCHCreateStatus) \
	F(nvrtcGetPCHHeapSizeRequired) \
	F(nvrtcSetFlowCallback)
