mod arrays;
mod files;
mod round_trip;
