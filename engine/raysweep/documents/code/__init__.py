"""Code that documents name: references and back, policies of the user's own, objects of Ray and Ray Tune."""
