/* The types of OpenGL that CUDA's functions take, for parsing alone. */
#pragma once
#define GL_VERSION 0x1F02
typedef unsigned int GLenum;
typedef unsigned int GLuint;
